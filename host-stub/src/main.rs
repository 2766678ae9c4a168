//! mote-host: plays the LXD or Incus host, so that an agent can be run and tested without either.
//! It shares no code with the agent, so that the two cannot agree on a mistake.

#![forbid(unsafe_code)]

mod agent_cli;
mod agent_client;
mod agent_state;
mod args;
mod certs;
mod cli;
mod clock;
mod control;
mod daemon;
mod devlxd;
mod devlxd_server;
mod events;
mod exec;
mod exec_request;
mod exec_sockets;
mod exec_wait;
mod fault;
mod file;
mod file_tree;
mod http;
mod instance;
mod metrics;
mod operations;
mod port_forward;
mod progress;
mod pump;
mod serial_connect;
mod sftp_client;
mod sftp_transfer;
mod sftp_wire;
mod share;
mod slots;
mod state;
mod status_ring;
mod storage;
mod store;
mod stream;
mod terminal;
mod tls;
mod upgrade;
mod websocket;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(std::env::args().skip(1).collect()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("mote-host: {error:#}");
            ExitCode::FAILURE
        }
    }
}
