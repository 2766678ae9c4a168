//! mote-host: plays the LXD or Incus host, so that an agent can be run and tested without either.
//! It shares no code with the agent, so that the two cannot agree on a mistake.
//!
//! A folder imports only from those below it:
//!
//! ```text
//! cli       the command line
//! run       a command in a VM that is there for it alone
//! exec      commands in the guest      files   SFTP      report   state and metrics
//! control   the daemon's own socket, both ends; which instances are served
//! devlxd    guests' requests           channel   the status port
//! daemon    instances, what is known of their VMs and agents, and what is wrong with them
//! agent     calls to an agent
//! instance  what an instance is, and its files
//! net       TLS, HTTP, time limits     common   clock, text, random numbers
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "only for the modules below that read from guests")]

#[deny(clippy::disallowed_methods)]
mod agent;
mod channel;
mod cli;
mod common;
mod control;
mod daemon;
mod devlxd;
#[deny(clippy::disallowed_methods)]
mod exec;
#[deny(clippy::disallowed_methods)]
mod files;
mod instance;
mod net;
#[deny(clippy::disallowed_methods)]
mod report;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(error) = run::child::become_another() {
        common::printable::complain(&format!("{error:#}"));
        return ExitCode::FAILURE;
    }
    match cli::act_on_line() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            common::printable::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
