//! mote-agent: the guest agent of LXD and Incus virtual machines. Chooses the command; `life` runs
//! the agent.

#![warn(clippy::indexing_slicing)]
#![cfg_attr(not(test), no_main)] // see `sys/start`

mod agent;
mod built;
mod cli;
mod config;
mod devlxd;
mod first_boot;
mod freeze;
mod guest_path;
mod handover;
mod hostapi;
mod hotplug;
mod init;
mod leave;
mod life;
mod net;
mod options;
mod print;
mod ready_when;
mod resume;
mod runtime;
mod start;
mod status;
mod sys;
mod system;
mod transport;
mod workers;

use std::ffi::{CString, OsString};
use std::fmt::Arguments;

use mote_core::hostapi::exec::STARTED_BY;
use mote_core::hostapi::info::RELEASE;

use crate::built::VERSION;
use crate::cli::{HELP, check, client, connect};
use crate::options::{Command, Options};
use crate::ready_when::watch;
use crate::runtime::{log, run};
use crate::workers::{after_resume, grow, mount, report};

/// Runs the command given by `arguments`, the program's name first; returns the exit code.
#[cfg_attr(test, expect(dead_code, reason = "the tests have their own entry point"))]
fn start(arguments: impl Iterator<Item = OsString>) -> u8 {
    let options = match options::parse(arguments) {
        parsed if built::INIT && init::is_wanted(&parsed) => return init::run(),
        Ok(options) => options,
        Err(error) => {
            print::complain(format_args!("{error}\nTry 'mote-agent --help'."));
            return 2;
        }
    };
    let starter = CString::new(STARTED_BY).ok().and_then(|name| sys::variable(&name));
    if let Err(why) = options.check_starter(starter.as_deref()) {
        print::complain(format_args!("{why}"));
        return 2;
    }
    log::set_debug(options.debug);
    match &options.command {
        Command::Run => match run(options) {
            Ok(()) => 0,
            Err(why) => {
                log::error(format_args!("{why}"));
                1
            }
        },
        Command::Check => check::run(&options),
        Command::Report(report) => report::run(&options, *report),
        Command::Connect(target) if built::PORT_FORWARD => connect::run(&options, target),
        Command::SftpServer(how) if built::FILES => workers::sftp::run(&options.root, how),
        Command::MountWorker(limit, agent) if built::MOUNTS => mount::run(&options, *limit, *agent),
        Command::ReadyWhen(list) if built::READY_WHEN => watch::run(&options.root, list),
        Command::Freeze(what) if built::FREEZE => freeze::run(&options.root, *what),
        Command::Grow(name) if built::RESOURCES => {
            grow::by_hand(&options.root, name.as_deref(), options.dry_run)
        }
        Command::GrowWorker if built::RESOURCES => grow::work(&options.root),
        Command::Nics(first) if built::FIRST_BOOT => first_boot::nics::plugged(&options, *first),
        Command::AfterResume(what) if built::RESTORE => after_resume::run(what),
        Command::Init if built::INIT => init::run(),
        Command::Leave(power) if built::INIT => init::tell(power),
        Command::Connect(_)
        | Command::SftpServer(_)
        | Command::MountWorker(..)
        | Command::Freeze(_)
        | Command::ReadyWhen(_)
        | Command::Grow(_)
        | Command::GrowWorker
        | Command::Nics(_)
        | Command::AfterResume(_)
        | Command::Init
        | Command::Leave(_) => built::absent(),
        // Print only the number, like the Go agents.
        Command::Version if options.stands_in => printed(format_args!("{RELEASE}\n")),
        Command::Version => printed(format_args!("mote-agent {VERSION}\n")),
        Command::Help if built::INIT => printed(format_args!("{}{}", HELP, init::HELP)),
        Command::Help => printed(format_args!("{HELP}")),
        Command::Ask(ask) => client::run(&options, ask),
    }
}

fn printed(text: Arguments<'_>) -> u8 {
    match print::out(text) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn run(options: Options) -> Result<(), String> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // Do this before any thread starts, because threads inherit the signal mask.
    let signals = sys::signals().map_err(|error| format!("signals: {error}"))?;
    sys::raise_file_limit();
    sys::keep_secrets();
    sys::lower_oom_score();
    life::run(options, signals, |agent, served| run::block_on(&agent.executor, served))
}
