//! The real `mote-host` between a scripted QEMU, an agent and a guest that are made here, of rustls
//! and strings. Nothing of the agent's is used, so a mistake in both would have to be made twice.

#![allow(clippy::unwrap_used, reason = "what fails in a test's set-up fails the test")]
#![allow(clippy::disallowed_methods, reason = "of the files that a test makes")]
mod answers;
mod causes;
mod cli;
mod daemon;
mod devlxd;
mod exec;
mod faults;
mod lies;
mod peers;
mod ring;
mod run;
mod serial;
mod share;
mod storage;
