//! `mote-servers`: see the library.

use std::process::ExitCode;

use clap::Parser;
use mote_servers::options::Command;
use mote_servers::{drive, report};

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
