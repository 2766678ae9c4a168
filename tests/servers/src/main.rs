//! `mote-servers`, behind `scripts/real-server`: drives a guest agent with an unmodified LXD or
//! Incus through the server's command line.
//!
//! `drive` runs on this machine. It boots an outer VM with `/dev/kvm` and vhost-vsock that contains
//! the real server (`outer`), and writes the table (`page`). `check` runs in the outer VM: it sets
//! the server up (`setup`), runs the checks (`checks`) and reports each result (`report`).

#![allow(missing_docs, unreachable_pub, reason = "a program of tests: names say what items are")]

mod checks;
mod drive;
mod outer;
mod page;
mod prelude;
mod report;
mod run;
mod seen;
mod server;
mod setup;
mod world;

use std::process::ExitCode;

use clap::Parser;
use server::Command;

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Check { world, wanted } => report::check(&world, &wanted),
        Command::Drive(options) => drive::drive(&options),
    };
    done.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(2)
    })
}
