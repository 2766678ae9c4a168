//! Boots Debian with each of five init systems, made by `image/debian` with mote's package, and
//! checks it from the host and with the guest's own tools. Needs root and `MOTE_DEB`; `scripts/test
//! distros` provides both.

mod apt;
mod systems;
mod world;
