//! The real `mote-host` with a scripted QEMU, agent and guest, made of rustls and strings. They
//! share no code with the agent, so the same mistake would have to be made twice.

#![allow(clippy::unwrap_used, reason = "what fails in a test's set-up fails the test")]
#![allow(clippy::disallowed_methods, reason = "the files are a test's own")]
mod answers;
mod causes;
mod cli;
mod daemon;
mod exec;
mod faults;
mod lies;
mod peers;
mod ring;
mod run;
mod serial;
