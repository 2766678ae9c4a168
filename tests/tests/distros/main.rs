//! Debian with each of five init systems, made by `image/debian` with mote's package, booted: what the host sees of
//! it, and what the guest's own tools say. Needs root, and `MOTE_DEB`; `scripts/test distros` sees to both.

mod apt;
mod cloud_init;
mod go_agent;
mod measured;
mod systemd;
mod systems;
mod world;
