//! The real binary at its start, in a directory instead of `/`: what it makes of the host's files,
//! what the guest's policy allows, what it waits for, how it starts anew, what it says is wrong, and that no reader of its output can stop it.

mod by_itself;
mod check;
mod early;
mod host;
#[cfg(target_arch = "x86_64")]
mod injected;
mod limits;
mod local;
mod policy;
mod reexec;
mod sandbox;
mod share;
mod strangers;
mod stuck;
mod templates;
mod world;
