//! `mote-servers`: see the library.

use std::process::ExitCode;

use mote_servers::{drive, report};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.split_first() {
        Some((first, rest)) if first == "check" => report::check(rest),
        Some((first, rest)) if first == "drive" => drive::drive(rest),
        Some(_) | None => {
            Err("usage: mote-servers check|drive ...; see scripts/real-server".into())
        }
    };
    match done {
        Ok(code) => code,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
