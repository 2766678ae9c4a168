//! mote-host: plays the LXD or Incus host, so that an agent can be run and tested without either.
//! It shares no code with the agent, so that the two cannot agree on a mistake.

#![forbid(unsafe_code)]

mod agent_client;
mod agent_state;
mod certs;
mod cli;
mod clock;
mod control;
mod daemon;
mod devlxd;
mod devlxd_server;
mod events;
mod fault;
mod http;
mod instance;
mod operations;
mod serial_connect;
mod slots;
mod status_ring;
mod storage;
mod store;
mod stream;
mod tls;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mote-host: {error:#}");
            ExitCode::FAILURE
        }
    }
}
