//! A run of one VM, from arguments to exit code.

use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::args::RunArgs;
use super::check;
use super::course::{Course, News, watch_signals};
use super::guest::{Job, pushed};
use super::machine::Plan;
use super::outcome::{Case, Outcome, Phases, result, write, write_junit};
use super::running_vm::{RunningVm, Scratch};
use crate::accel::Accel;
use mote_client::agent::client::Agent;
use mote_client::common::printable::{complain, quoted, word};
use mote_client::exec::output::Tails;
use mote_client::exec::request::{Exec, Terminal};
use mote_client::exec::terminal;
use mote_client::files::local_directory::report;
use mote_vm::console::{Console, Echo, Keeps};

const NAME: &str = "run";
/// Time for the agent to start.
const BOOT: Duration = Duration::from_secs(60);
const BOOT_WITH_TCG: Duration = Duration::from_secs(180);

/// Runs the command and returns the exit code.
pub(super) fn run(args: &RunArgs) -> Result<u8> {
    let mut phases = Phases::new();
    // Before anything exists that a signal would leave behind.
    let signals = watch_signals()?;
    let mut about = Value::Null;
    let tails = if args.junit.is_some() { Tails::kept() } else { Tails::default() };
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
    if let Some(path) = &args.result {
        write(path, &format!("{}\n", result(&outcome, &phases, &about)))?;
    }
    if let Some(path) = &args.junit {
        let booted = args.vm.kernel.first().map(|path| path.display().to_string());
        let booted = booted.or_else(|| args.vm.disk.clone()).unwrap_or_default();
        let name = format!("{booted}: {}", args.command.join(" "));
        let case = Case::of(name, &outcome, phases.total(), tails.both());
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
    tails: &Tails,
) -> Result<Option<Outcome>> {
    check::inputs(args)?;
    if args.terminal && !stdin().is_terminal() {
        bail!("-t needs a terminal on stdin");
    }
    let scratch = Scratch::new()?;
    let root = scratch.path();
    let plan = Plan::new(root, NAME, &args.vm, root)?;
    let usual = root.join("console");
    let path = args.console.as_ref().map(std::path::absolute).transpose()?.unwrap_or(usual);
    if args.dry_run {
        print(&plan, root, &path, args.verbose)?;
        return Ok(None);
    }
    *about = json!({"accel": word(plan.used), "why_tcg": plan.why_tcg,
        "kernel": args.vm.kernel.first(), "disk": args.vm.disk});
    if plan.used == Accel::Tcg && (args.verbose || stderr().is_terminal()) {
        let why = if plan.why_tcg.is_empty() { "asked for" } else { &plan.why_tcg };
        complain(&format!("the VM is emulated (TCG), which is slow: {why}"));
    }
    if args.shell_on_failure && !stdin().is_terminal() {
        complain("--shell-on-failure needs a terminal on stdin: there will be no shell");
    }
    // Removes the results of an earlier run.
    report(&path)?;
    let echo = if args.verbose { Echo::Stderr } else { Echo::No };
    let keeps = if args.console.is_some() { Keeps::All } else { Keeps::End };
    let mut console = Console::new(path.clone(), echo, keeps);
    // Opened before a guest with a share can replace the file.
    console.look();
    let push = args.push.iter().map(pushed).collect::<Result<_>>()?;
    let log = report(&args.log.clone().unwrap_or_else(|| root.join("log")))?;
    let vm = RunningVm::start(root, &plan, &path, args.verbose, log)?;
    phases.booted = Some(Instant::now());
    let usual = if plan.used == Accel::Kvm { BOOT } else { BOOT_WITH_TCG };
    let (sender, news) = signals;
    let mut course = Course {
        vm,
        console,
        news,
        boot: args.boot_timeout.unwrap_or(usual),
        timeout: args.timeout,
        kept: args.console.is_some(),
        plan: &plan,
        keep: args.keep.then(|| root.to_owned()),
        about,
        pulls: args.pull.len(),
        cannot_run: None,
        lacks: Vec::new(),
    };
    let job = job(args, root, &plan, push, tails.clone());
    let outcome = course.run(job, sender, phases);
    if outcome.has_exited() && args.vm.write {
        course.switch_off();
    }
    drop(course);
    drop(scratch);
    Ok(Some(outcome))
}

fn job(
    args: &RunArgs,
    root: &Path,
    plan: &Plan,
    push: Vec<(PathBuf, PathBuf)>,
    tails: Tails,
) -> Job {
    // The terminal is not read unless -t is given.
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
    Job {
        agent: Agent::of(root, &plan.instance),
        exec: Exec { tails, ..exec },
        sync: args.vm.write.then_some(sync),
        shell: has_shell.then_some(shell),
        shares: plan.shares.clone(),
        push,
        pull: args.pull.clone(),
        until: Instant::now(),
    }
}

/// Prints the command line for `--dry-run`.
fn print(plan: &Plan, root: &Path, console: &Path, verbose: bool) -> Result<()> {
    let word = |path: &PathBuf| quoted(&path.display().to_string());
    let mut line = word(&plan.qemu);
    for argument in plan.arguments(root, console, verbose)? {
        line += if argument.starts_with('-') { " \\\n  " } else { " " };
        line += &quoted(&argument);
    }
    if !plan.why_tcg.is_empty() {
        writeln!(stdout(), "# TCG: {}", plan.why_tcg)?;
    }
    Ok(writeln!(stdout(), "{line}")?)
}
