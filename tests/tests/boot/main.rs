//! The real binary with a directory instead of `/`: files, policy, start, restart and `--check`.

mod by_itself;
mod check;
mod early;
mod host;
#[cfg(target_arch = "x86_64")]
mod injected;
mod local;
mod policy;
mod power;
mod sandbox;
mod stuck;
mod world;
