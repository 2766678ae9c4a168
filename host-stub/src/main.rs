//! mote-host: emulates the LXD or Incus host, so that an agent can be run and tested without either.
//! It shares no code with the agent, so that the two cannot agree on a mistake.
//!
//! This crate is the command line. `run` boots a VM for one command, `stub` emulates the host, `vm` is
//! a QEMU machine, and `client` calls agents.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "opens no file below a path that a guest chose")]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match mote_run::become_another().map_or_else(cli::act_on_line, Err) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            mote_client::common::printable::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
