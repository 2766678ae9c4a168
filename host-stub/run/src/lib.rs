//! `run`: runs a command in a temporary VM. The host and the clients of QEMU's monitor and of the
//! agent run in this process.
//!
//! ```text
//! machine: the VM ─▶ running_vm: starts it ─▶ course: until it ends ─▶ outcome: code, messages, files
//!                                        guest: files, command, files (a thread)
//! ```

#![forbid(unsafe_code)]
#![allow(missing_debug_implementations, missing_docs, reason = "this crate is internal")]
#![allow(clippy::disallowed_methods, reason = "the module that reads from guests denies them")]

mod accel;
pub mod args;
pub mod boot;
mod check;
mod child;
mod course;
#[deny(clippy::disallowed_methods)]
mod guest;
mod machine;
mod matrix;
mod outcome;
mod running_vm;
mod share;

pub use self::child::become_another;
pub use self::outcome::NOT_RUN;

use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use self::args::{JobArgs, RunArgs};
use self::course::{Course, News, watch_signals};
use self::guest::{Job, pushed};
use self::machine::Machine;
use self::outcome::{Case, Outcome, Phases, result, write, write_junit};
use self::running_vm::{RunningVm, Scratch};
use crate::accel::Accel;
use mote_client::common::printable::{quoted, word};
use mote_client::exec::output::Tail;
use mote_client::exec::request::{Exec, Terminal};
use mote_client::exec::terminal;
use mote_client::files::local_directory::report;
use mote_client::{Agent, complain};
use mote_vm::console::{Console, Echo, Keeps};
use mote_vm::recipe::Writes;

const NAME: &str = "run";

/// Runs the command and returns the exit code. Errors that are not the command's are printed and
/// have a code of their own.
pub fn run(args: RunArgs) -> u8 {
    checked(args).unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        NOT_RUN
    })
}

fn checked(mut args: RunArgs) -> Result<u8> {
    if matrix::is_one(&mut args.vm, &mut args.reports)? {
        return one(&args);
    }
    check::outputs(&args.reports)?;
    if args.vm.kernel.len() > 1 && !args.dry_run {
        check::vm(&args.vm)?;
        check::job(&args.job)?;
        return matrix::run(&args);
    }
    one(&args)
}

fn one(args: &RunArgs) -> Result<u8> {
    let mut phases = Phases::new();
    // Watch signals before anything exists that an early end would leave behind.
    let signals = watch_signals()?;
    let mut about = Value::Null;
    let is_kept = args.reports.junit.is_some();
    let tails = [(); 2].map(|()| if is_kept { Tail::kept() } else { Tail::default() });
    let outcome = staged(args, &mut phases, signals, &mut about, &tails);
    terminal::restore();
    let outcome = match outcome {
        Ok(Some(outcome)) => outcome,
        Ok(None) => return Ok(0),
        Err(error) => {
            let why = format!("{error:#}");
            complain(&why);
            Outcome::NotRun(why)
        }
    };
    let result = result(&outcome, &phases, &about);
    if let Some(path) = &args.reports.result {
        write(path, &format!("{result}\n"))?;
    }
    if let Some(path) = &args.reports.junit {
        let booted = args.vm.kernel.first().map(|path| path.display().to_string());
        let booted = booted.or_else(|| args.vm.disk.clone()).unwrap_or_default();
        let name = format!("{booted}: {}", args.job.command.join(" "));
        let case = Case::of(name, &result, phases.total(), tails.each_ref().map(Tail::bytes));
        write_junit(path, &[case])?;
    }
    Ok(outcome.code())
}

/// Runs in a directory that is removed afterwards. Returns `None` if there was nothing to run.
fn staged(
    args: &RunArgs,
    phases: &mut Phases,
    signals: (Sender<News>, Receiver<News>),
    about: &mut Value,
    tails: &[Tail; 2],
) -> Result<Option<Outcome>> {
    let RunArgs { vm: arguments, limits, job, reports, .. } = args;
    check::vm(arguments)?;
    check::job(job)?;
    if job.terminal && !stdin().is_terminal() {
        bail!("-t needs a terminal on stdin");
    }
    let scratch = Scratch::new()?;
    let root = scratch.path();
    let machine = Machine::new(root, NAME, arguments.clone(), root)?;
    let usual = root.join("console");
    let path = reports.console.as_ref().map(std::path::absolute).transpose()?.unwrap_or(usual);
    if args.dry_run {
        print(&machine, root, &path, reports.verbose)?;
        return Ok(None);
    }
    *about = json!({"accel": word(machine.used), "why_tcg": machine.why_tcg,
        "kernel": arguments.kernel.first(), "disk": arguments.disk});
    if machine.used == Accel::Tcg && (reports.verbose || stderr().is_terminal()) {
        let why = if machine.why_tcg.is_empty() { "asked for" } else { &machine.why_tcg };
        complain(&format!("the VM is emulated (TCG), which is slow: {why}"));
    }
    if job.shell_on_failure && !stdin().is_terminal() {
        complain("--shell-on-failure needs a terminal on stdin: there will be no shell");
    }
    // Removes the results of an earlier run.
    report(&path)?;
    let echo = if reports.verbose { Echo::Stderr } else { Echo::No };
    let keeps = if reports.console.is_some() { Keeps::All } else { Keeps::End };
    let mut console = Console::new(path.clone(), echo, keeps);
    // Open it before a guest with a share can replace the file.
    console.look();
    let resolved = self::job(job, root, &machine, tails.clone())?;
    let log = report(&reports.log.clone().unwrap_or_else(|| root.join("log")))?;
    let vm = RunningVm::start(root, &machine, &path, reports.verbose, log)?;
    phases.booted = Some(Instant::now());
    let (sender, news) = signals;
    let mut course = Course {
        vm,
        console,
        news,
        boot: limits.boot(machine.used),
        timeout: limits.timeout,
        kept: reports.console.is_some(),
        machine: &machine,
        keep: job.keep.then(|| root.to_owned()),
        about,
        pulls: job.pull.len(),
        cannot_run: None,
        lacks: Vec::new(),
    };
    let outcome = course.run(resolved, sender, phases);
    if outcome.has_exited() && machine.writes == Writes::Kept {
        course.switch_off();
    }
    drop(course);
    drop(scratch);
    Ok(Some(outcome))
}

/// Resolves the arguments of the job.
fn job(args: &JobArgs, root: &Path, machine: &Machine, tails: [Tail; 2]) -> Result<Job> {
    // Without -t, the terminal is not read.
    let is_unread = stdin().is_terminal() && !args.terminal;
    let sync = Exec {
        name: NAME.to_owned(),
        command: vec!["sync".into()],
        terminal: Terminal::NO,
        no_stdin: true,
        keeps_signals: true,
        ..Exec::default()
    };
    let exec = Exec {
        command: args.command.clone(),
        env: args.env.clone(),
        user: args.user.map(|(user, _)| user),
        group: args.user.map(|(_, group)| group),
        cwd: args.cwd.clone(),
        terminal: if args.terminal { Terminal::YES } else { Terminal::NO },
        no_stdin: is_unread,
        ..sync.clone()
    };
    let (command, terminal) = (vec!["sh".into()], Terminal::YES);
    let shell = Exec { command, no_stdin: false, terminal, ..exec.clone() };
    let has_shell = args.shell_on_failure && stdin().is_terminal();
    Ok(Job {
        agent: Agent::of(root, &machine.instance),
        exec: Exec { tails, ..exec },
        sync: (machine.writes == Writes::Kept).then_some(sync),
        shell: has_shell.then_some(shell),
        shares: machine.shares.clone(),
        push: args.push.iter().map(pushed).collect::<Result<_>>()?,
        pull: args.pull.clone(),
        until: Instant::now(),
    })
}

fn print(machine: &Machine, root: &Path, console: &Path, verbose: bool) -> Result<()> {
    let word = |path: &PathBuf| quoted(&path.display().to_string());
    let mut line = word(&machine.qemu);
    for argument in machine.arguments(root, console, verbose)? {
        line += if argument.starts_with('-') { " \\\n  " } else { " " };
        line += &quoted(&argument);
    }
    if !machine.why_tcg.is_empty() {
        writeln!(stdout(), "# TCG: {}", machine.why_tcg)?;
    }
    Ok(writeln!(stdout(), "{line}")?)
}
