//! Supervises the running VM: the first event that ends it decides the outcome.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::guest::{Job, Step};
use super::machine::Machine;
use super::outcome::{Outcome, Phases};
use super::running_vm::{RunningVm, last_line};
use mote_client::clock::until;
use mote_client::common::printable::{quoted, to_stderr};
use mote_client::exec::run::switch_off;
use mote_client::instance::vsock_device::Watch;
use mote_client::{Agent, CallFailure, FailedCall, Limit, complain};
use mote_stub::daemon::Live;
use mote_stub::daemon::diagnosis::diagnose;
use mote_stub::daemon::vm::Monitor;
use mote_vm::console::Console;

/// An event that does not come from the VM.
#[derive(Debug)]
pub(crate) enum News {
    Signal(i32),
    Guest(Step),
}

/// Interval between checks of the VM.
const LOOK: Duration = Duration::from_millis(10);
/// How long to wait after QEMU's end for the monitor's last messages and the guest's last data.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// A panic ends QEMU immediately or never. An agent that answers after this time disproves it.
const PANICKED: Duration = Duration::from_millis(400);
/// Limit for the call that checks this.
const ANSWER: Duration = Duration::from_millis(500);
/// Part of mote's message if neither the kernel nor its modules have a driver for the vsock device,
/// which every run has.
const NO_DRIVER: &str = "no driver (vmw_vsock_virtio_transport)";
/// How long a boot that seems to have stopped may still reach its agent.
const STUCK: Duration = Duration::from_secs(10);
/// The message for a VM that has read and printed nothing.
const NOTHING_BOOTED: &str = "nothing was booted: the guest has read nothing of its config share, and its console is \
                              empty. Does the disk have a boot loader for this machine's firmware, and the kernel \
                              console=ttyS0 on its command line?";
/// Limit for a guest to power off.
const OFF: Duration = Duration::from_secs(10);

pub(crate) struct Course<'a> {
    pub(crate) vm: RunningVm,
    pub(crate) console: Console,
    pub(crate) news: Receiver<News>,
    pub(crate) boot: Duration,
    pub(crate) timeout: Option<Duration>,
    /// Whether the console's file is kept.
    pub(crate) kept: bool,
    pub(crate) machine: &'a Machine,
    /// The directory for other commands, if the VM is kept.
    pub(crate) keep: Option<PathBuf>,
    pub(crate) about: &'a mut Value,
    /// Number of `--pull` options.
    pub(crate) pulls: usize,
    /// Why the guest could not run the command.
    pub(crate) cannot_run: Option<String>,
    /// Why part of the command's output is missing.
    pub(crate) lacks: Vec<String>,
}

/// Reports signals that end a process. The second signal ends this process immediately, and the
/// kernel then ends its child processes.
pub(crate) fn watch_signals() -> Result<(Sender<News>, Receiver<News>)> {
    let (sender, receiver) = channel();
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let news = sender.clone();
    thread::spawn(move || {
        let mut is_told = false;
        for signal in signals.forever() {
            if is_told || news.send(News::Signal(signal)).is_err() {
                #[expect(clippy::exit, reason = "a second signal ends this process immediately")]
                std::process::exit(128 + signal);
            }
            is_told = true;
        }
    });
    Ok((sender, receiver))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Boot,
    /// The agent answers; files are pushed.
    Before,
    Command,
    After(u8),
    Kept(u8),
}

impl Course<'_> {
    pub(crate) fn run(&mut self, job: Job, tell: Sender<News>, phases: &mut Phases) -> Outcome {
        let outcome = self.until_it_ends(job, &tell, phases);
        match outcome.cause() {
            Some(_) if matches!(outcome, Outcome::CannotRun(..)) => {
                self.lacks.iter().for_each(|why| complain(why));
            }
            Some(cause) if outcome.has_exited() => complain(&cause),
            Some(cause) => self.complain(&cause),
            None => {}
        }
        outcome
    }

    fn until_it_ends(&mut self, job: Job, tell: &Sender<News>, phases: &mut Phases) -> Outcome {
        let mut job = Some(job);
        let mut stage = Stage::Boot;
        let begun = Instant::now();
        let mut panicked = None;
        loop {
            match self.news.recv_timeout(LOOK) {
                Ok(News::Signal(signal)) => {
                    // SIGINT is the normal end of a kept VM.
                    let Stage::Kept(code) = stage else { return Outcome::Signal(signal) };
                    let is_end = signal == SIGINT;
                    return if is_end { self.exited(code) } else { Outcome::Signal(signal) };
                }
                Ok(News::Guest(step)) => {
                    if let Some(outcome) = self.stepped(step, &mut stage, phases) {
                        return outcome;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if let Some(why) = self.is_over(&mut panicked) {
                return self.lost(stage, why, phases);
            }
            let spent = |since: Option<Instant>| since.unwrap_or(begun).elapsed();
            let is_reachable = self.vm.look(|live| live.agent.started || live.called);
            match (stage, self.timeout) {
                (Stage::Boot, _) if is_reachable == Some(true) => {
                    phases.connected = Some(Instant::now());
                    stage = Stage::Before;
                    if let Some(job) = job.take() {
                        let job = Job { until: begun + self.boot, ..job };
                        let tell = tell.clone();
                        thread::spawn(move || {
                            job.run(&|step| tell.send(News::Guest(step)).is_ok())
                        });
                    }
                }
                (Stage::Boot, _)
                    if self.console.stuck().is_some_and(|stuck| stuck.since.elapsed() > STUCK) =>
                {
                    return Outcome::NotRun(self.stopped("its agent did not report itself"));
                }
                (Stage::Boot, _) if begun.elapsed() > self.boot => {
                    let limit = self.boot.as_secs_f64();
                    let why = self.why_silent(None);
                    let why = self.stopped(&why);
                    return Outcome::NotRun(format!("no agent after {limit} s: {why}"));
                }
                (Stage::Command, Some(limit)) if spent(phases.started) > limit => {
                    let limit = limit.as_secs_f64();
                    return Outcome::TimedOut(format!("the command has not ended after {limit} s"));
                }
                _ => {}
            }
        }
    }

    fn stepped(&mut self, step: Step, stage: &mut Stage, phases: &mut Phases) -> Option<Outcome> {
        match step {
            Step::Shared(target, way) => self.about["shares"][target] = json!(way),
            Step::Started => {
                phases.started = Some(Instant::now());
                *stage = Stage::Command;
            }
            Step::Ended(Ok(code)) => {
                phases.ended = Some(Instant::now());
                *stage = Stage::After(code);
            }
            Step::CannotRun(why) => {
                complain(&why);
                self.cannot_run = Some(why);
            }
            Step::Ended(Err(silent)) => {
                // Usually the VM has ended, which the next checks notice.
                let limit = if silent.is_empty() { LAST_WORDS } else { Duration::ZERO };
                let why = until(limit, LOOK, || self.is_over(&mut Some(Instant::now())));
                let why = why.unwrap_or_else(|| match silent.as_str() {
                    "" => self.diagnosis(None),
                    _ => silent,
                });
                return Some(self.lost(*stage, why, phases));
            }
            Step::NotRun(error) => {
                let failure = FailedCall::cause(&error);
                let why = format!("{error:#}");
                return Some(Outcome::NotRun(match failure {
                    Some(_) => format!("{} ({why})", self.why_silent(failure)),
                    None => why,
                }));
            }
            Step::Lacks(why) => self.lacks.push(why),
            Step::Done(code) => match &self.keep {
                Some(root) => {
                    let root = quoted(&root.display().to_string());
                    let name = &self.vm.instance().name;
                    complain(&format!(
                        "exit code {code}; the VM stays until Ctrl-C: mote-host --dir {root} exec {name} -- ..."
                    ));
                    *stage = Stage::Kept(code);
                    self.lacks.iter().for_each(|why| complain(why));
                }
                None => return Some(self.exited(code)),
            },
        }
        None
    }

    fn is_over(&mut self, panicked: &mut Option<Instant>) -> Option<String> {
        let panic = self.console.look().map(str::to_owned);
        if let Some(status) = self.vm.qemu.ended() {
            let is_monitored = |live: &mut Live| live.vm.monitor == Monitor::Connected;
            until(LAST_WORDS, Duration::from_millis(1), || {
                (self.vm.look(is_monitored) != Some(true)).then_some(())
            });
            // Read the console's last output.
            let panic = self.console.look().map(str::to_owned);
            return Some(match panic {
                Some(panic) => said(&panic),
                None if !status.success() => {
                    format!("QEMU ended ({status}): {}", last_line(&self.vm.qemu_log))
                }
                None => self.diagnosis(None),
            });
        }
        if let Some(why) = self.vm.vsock.as_mut().and_then(Watch::why_stopped) {
            return Some(why);
        }
        let is_still = self.vm.stands_still();
        if panic.is_none() && !is_still {
            return None;
        }
        let since = *panicked.get_or_insert_with(Instant::now);
        if since.elapsed() < PANICKED {
            return None;
        }
        // A program may print such a line, but a kernel that has panicked runs no program.
        if !is_still && self.answers() {
            *panicked = Some(Instant::now() + Duration::from_secs(60));
            return None;
        }
        Some(panic.map_or_else(|| self.diagnosis(None), |panic| said(&panic)))
    }

    fn answers(&self) -> bool {
        let agent = Agent::of(&self.vm.host.daemon.root, &self.vm.instance());
        agent.metadata("GET", "/1.0", Limit::Until(Instant::now() + ANSWER)).is_ok()
    }

    /// Returns why the boot does not reach its agent, and where it stopped if known.
    fn stopped(&mut self, why: &str) -> String {
        match self.console.stuck() {
            Some(stuck) => format!("the guest's boot stopped at \"{}\": {why}", stuck.line),
            None => why.to_owned(),
        }
    }

    fn diagnosis(&self, failure: Option<CallFailure>) -> String {
        if self.vm.look(|live| live.vm.has_no_space()) == Some(true) {
            return format!(
                "{}, which stores the guest's disk writes, is full, so QEMU has stopped the VM",
                self.machine.written_to().display()
            );
        }
        let is_unread = self.vm.look(|live| live.vm.share_read == Some(0)) == Some(true);
        if is_unread && self.about["kernel"].is_null() && self.console.tail().is_empty() {
            return NOTHING_BOOTED.to_owned();
        }
        let text = self.vm.look(|live| diagnose(live, failure).text);
        text.unwrap_or_else(|| "the VM is gone".to_owned())
    }

    /// Returns why there is no agent. In many images the agent's own reason is on the console.
    fn why_silent(&self, failure: Option<CallFailure>) -> String {
        let diagnosis = self.diagnosis(failure);
        match self.console.agent() {
            Some(said) if said.contains(NO_DRIVER) => format!("this kernel has no vsock: {said}"),
            Some(said) => format!("{diagnosis}; the agent's last message: {said}"),
            None => diagnosis,
        }
    }

    /// Returns the outcome of a VM that has ended, after writing the data that the guest sent
    /// before.
    fn lost(&mut self, mut stage: Stage, why: String, phases: &mut Phases) -> Outcome {
        phases.ended.get_or_insert_with(Instant::now);
        let end = Instant::now() + LAST_WORDS;
        while stage == Stage::Command {
            let left = end.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(left) {
                Ok(News::Signal(signal)) => return Outcome::Signal(signal),
                Ok(News::Guest(Step::Ended(Err(_)))) | Err(_) => break,
                Ok(News::Guest(step)) => drop(self.stepped(step, &mut stage, phases)),
            }
        }
        match stage {
            Stage::Boot => Outcome::NotRun(self.stopped(&why)),
            Stage::Before => Outcome::NotRun(why),
            Stage::Command => Outcome::Lost(why),
            Stage::After(code) => {
                if self.pulls > 0 {
                    self.lacks
                        .push(format!("the guest was lost before its files were copied: {why}"));
                }
                self.exited(code)
            }
            Stage::Kept(code) => self.exited(code),
        }
    }

    fn exited(&self, code: u8) -> Outcome {
        let lacks = self.lacks.join("; ");
        match &self.cannot_run {
            Some(why) => Outcome::CannotRun(code, why.clone()),
            None if lacks.is_empty() => Outcome::Exited(code),
            None => Outcome::Incomplete(code, lacks),
        }
    }

    fn complain(&self, cause: &str) {
        complain(cause);
        let tail = self.console.tail();
        if !tail.is_empty() {
            to_stderr(format_args!("the console's last lines:\n{tail}"));
        }
        if self.kept {
            to_stderr(format_args!("the whole console: {}\n", self.console.path().display()));
        }
        let why = &self.machine.why_tcg;
        if !why.is_empty() {
            to_stderr(format_args!("the VM was emulated (TCG), which is slow: {why}\n"));
        }
    }

    /// Powers off the VM, so that its disk gets all written data.
    pub(crate) fn switch_off(&mut self) {
        let is_asked = switch_off(&self.vm.host.daemon.root, &self.vm.instance().name, OFF);
        if is_asked.unwrap_or(false) && self.vm.qemu.ends_within(OFF).is_some() {
            return;
        }
        complain(
            "the guest ignored its power button and was switched off after syncing its writes",
        );
        let _gone = self.vm.look(|live| live.vm.order("quit").unwrap_or(false));
        self.vm.qemu.ends_within(Duration::from_secs(2));
    }
}

fn said(panic: &str) -> String {
    format!("guest panicked: \"{panic}\"")
}
