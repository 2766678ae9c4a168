//! The real binary with a directory instead of `/`: the host's files, the guest's policy, start,
//! restart in place, and `--check`. Readers of its output cannot stop it.

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
