//! The thread that works in the guest: pushes files, runs the command, pulls files. On a busy
//! machine, a call to an agent that has reported itself may be late or cut off. If it is safe, it
//! is repeated until the run's time limit; each late call doubles the next one's limit.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::share::{Share, mounted};
use mote_client::exec::request::Exec;
use mote_client::exec::run::{self as exec, Asked, End};
use mote_client::files::local_directory::{Missing, Target, place};
use mote_client::files::session::{self, SILENCE, Session};
use mote_client::files::tree::{self, Owner, Pull, Push, Unlike};
use mote_client::{Agent, CallFailure, FailedCall, Limit, complain, connecting, limits, printable};

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) agent: Agent,
    pub(crate) exec: Exec,
    pub(crate) shell: Option<Exec>,
    /// The last command, which syncs the guest's disk.
    pub(crate) sync: Option<Exec>,
    pub(crate) shares: Vec<Share>,
    /// Source and target. The sources' paths contain no links, which the guest may create.
    pub(crate) push: Vec<(PathBuf, PathBuf)>,
    pub(crate) pull: Vec<(String, String)>,
    /// The time by which the agent must have answered and the command started.
    pub(crate) until: Instant,
}

#[derive(Debug)]
pub(crate) enum Step {
    /// How a share is mounted.
    Shared(String, &'static str),
    Started,
    /// The command has ended with this code, or the guest was lost, with the reason if known.
    Ended(Result<u8, String>),
    /// The guest could not run the command, with the reason; its end follows.
    CannotRun(String),
    /// The command could not be started.
    NotRun(anyhow::Error),
    /// Output could not be written, or files could not be pulled.
    Lacks(String),
    /// All work is done; this is the command's exit code.
    Done(u8),
}

/// Handles a message from the job; returns whether the main thread waits for it.
type Tell<'a> = dyn Fn(Step) -> bool + 'a;

/// Interval between calls to an agent that has reported itself but does not listen yet.
const AGAIN: Duration = Duration::from_millis(50);
/// How long to wait for the agent to mount the shares.
const MOUNTS: Duration = Duration::from_secs(1);
/// Limit for a call after the command.
const AFTER: Duration = Duration::from_secs(60);

impl Job {
    pub(crate) fn run(&self, tell: &Tell<'_>) {
        let code = match self.command(tell) {
            Ok(code) => code,
            Err(error) => {
                tell(Step::NotRun(error));
                return;
            }
        };
        if let (true, Ok(code)) = (tell(Step::Ended(code.clone())), code) {
            if let Err(error) = self.after(code) {
                tell(Step::Lacks(format!("{error:#}")));
            }
            tell(Step::Done(code));
        }
    }

    /// Pushes files and runs the command. Returns its code, or why the guest was lost.
    fn command(&self, tell: &Tell<'_>) -> Result<Result<u8, String>> {
        let (agent, retry) = (&self.agent, RetryPolicy::until(self.until));
        let events = retry.ask(|limit| exec::listen(agent, limit), is_passing)?;
        if self.exec.needs_identity() {
            let knows = |limit| exec::knows_users(agent, &self.exec, limit);
            retry.ask(knows, is_passing)?;
        }
        if !self.shares.is_empty() || !self.push.is_empty() {
            self.before(tell)?;
        }
        // A request that the agent may have received is not repeated, so it gets all of the time.
        let ask = |_| Asked::new(agent, &self.exec, retry.whole());
        let asked = retry.ask(ask, is_unsent)?;
        let started = || {
            tell(Step::Started);
        };
        let End { outcome, body, lost } =
            asked.run(agent, &self.exec, events, retry.whole(), started)?;
        for why in lost {
            tell(Step::Lacks(why));
        }
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(why) => return Ok(Err(why)),
        };
        let code = outcome.exit_code()?;
        // If there is no error, the command itself has exited with such a code.
        if outcome.error.is_some()
            && let Some(why) = exec::cannot_run(agent, code, &body)
        {
            tell(Step::CannotRun(why));
        }
        Ok(Ok(code))
    }

    fn session(&self, retry: RetryPolicy) -> Result<Session> {
        let open = |limit| session::open(&self.agent, limit, SILENCE);
        retry.ask(open, is_passing)
    }

    fn before(&self, tell: &Tell<'_>) -> Result<()> {
        let mut session = self.session(RetryPolicy::until(self.until))?;
        if !self.shares.is_empty() {
            // This also limits a guest that makes only a little progress now and then.
            session.stream.limit(RetryPolicy::until(self.until).whole());
            let list = self.mounts(&mut session)?;
            session.stream.limit(Limit::Each(SILENCE));
            for share in &self.shares {
                let way = match mounted(&list, &share.target) {
                    Some("virtiofs") => "virtiofs",
                    Some(_) => "9p",
                    None => {
                        copy(&mut session, &share.source, Path::new(&share.target))?;
                        if !share.read_only {
                            complain(&format!(
                                "{} in the guest is a copy, and changes to it are lost: this machine and the \
                                 guest support neither virtiofs nor 9p (with :ro this is not reported)",
                                share.target
                            ));
                        }
                        "copy"
                    }
                };
                tell(Step::Shared(share.target.clone(), way));
            }
        }
        self.push.iter().try_for_each(|(from, to)| copy(&mut session, from, to))
    }

    /// Returns the guest's mounts, as soon as they contain the shares or the time is over.
    fn mounts(&self, session: &mut Session) -> Result<String> {
        let end = Instant::now() + MOUNTS;
        loop {
            let mut list = vec![0; limits::MOUNTS];
            let mut rest = list.as_mut_slice();
            tree::pull_file(session, Path::new("/proc/mounts"), &mut rest)?;
            let left = rest.len();
            list.truncate(limits::MOUNTS - left);
            let list = String::from_utf8_lossy(&list).into_owned();
            let is_there = |share: &Share| mounted(&list, &share.target).is_some();
            if self.shares.iter().all(is_there) || Instant::now() > end {
                return Ok(list);
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Opens a shell if the command failed, then pulls files. Fails if a pull fails.
    fn after(&self, code: u8) -> Result<()> {
        if let Some(shell) = self.shell.as_ref().filter(|_| code != 0) {
            complain(&format!("exit code {code}; opening a shell in the VM, which then ends"));
            if let Err(error) = self.also(shell) {
                complain(&format!("shell: {error:#}"));
            }
        }
        let fetched = self.fetch();
        if let Some(sync) = &self.sync {
            // The image may lack that program.
            let _as_it_is = self.also(sync);
        }
        fetched
    }

    fn also(&self, exec: &Exec) -> Result<()> {
        let (agent, retry) = (&self.agent, RetryPolicy::of(AFTER));
        let events = retry.ask(|limit| exec::listen(agent, limit), is_passing)?;
        let asked = retry.ask(|_| Asked::new(agent, exec, retry.whole()), is_unsent)?;
        asked.run(agent, exec, events, connecting(), || {}).map(drop)
    }

    fn fetch(&self) -> Result<()> {
        if self.pull.is_empty() {
            return Ok(());
        }
        let mut session = self.session(RetryPolicy::of(AFTER))?;
        let mut pull = Pull { session: &mut session, unlike: Unlike::default() };
        let fetch = |(from, to): &(String, String)| {
            let from = Path::new("/").join(from);
            place(&from, Path::new(to), Target::Any, Missing::Refuse)
                .and_then(|to| pull.tree(&from, to))
                .with_context(|| format!("--pull {}", printable::name(&from)))
        };
        self.pull.iter().try_for_each(fetch)
    }
}

/// Returns the source without links, and the target. A source that is a link is replaced by its
/// target; links in a directory stay links.
pub(crate) fn pushed((from, to): &(String, String)) -> Result<(PathBuf, PathBuf)> {
    let from = Path::new(from);
    let here = from.canonicalize().with_context(|| from.display().to_string())?;
    let mut target = Path::new("/").join(to);
    if to.ends_with('/') {
        // Use the given name, or that of the resolved path if there is none, as for `.`.
        let name = from.file_name().or(here.file_name());
        target.push(name.context("/ cannot be copied as a whole")?);
    }
    Ok((here, target))
}

fn copy(session: &mut Session, from: &Path, to: &Path) -> Result<()> {
    if let Some(above) = to.parent() {
        tree::make_parents(session, above)?;
    }
    let (owner, unlike) = (Owner::default(), Unlike::default());
    Push { session, mode: None, owner, unlike }.tree(from, to)
}

/// Limit for the first call.
const FIRST: Duration = Duration::from_secs(5);
/// How long an agent that has reported itself may refuse connections or use an old certificate.
const SETTLES: Duration = Duration::from_secs(10);

/// The time for repeated calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    begun: Instant,
    until: Instant,
}

impl RetryPolicy {
    /// Returns a policy that repeats calls until `end`, or longer ([`SETTLES`]) for an agent that
    /// has just reported itself.
    pub(crate) fn until(end: Instant) -> Self {
        let begun = Instant::now();
        Self { begun, until: end.max(begun + SETTLES) }
    }

    pub(crate) fn of(duration: Duration) -> Self {
        Self::until(Instant::now() + duration)
    }

    pub(crate) fn whole(self) -> Limit {
        Limit::Until(self.until.max(Instant::now() + FIRST))
    }

    pub(crate) fn ask<T>(
        self,
        mut call: impl FnMut(Limit) -> Result<T>,
        may_be_repeated: fn(&anyhow::Error) -> bool,
    ) -> Result<T> {
        let mut time = FIRST;
        loop {
            let error = match call(Limit::Until(self.until.min(Instant::now() + time))) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let failure = FailedCall::cause(&error);
            let settles = failure.is_some() && self.begun.elapsed() < SETTLES;
            if !(settles || may_be_repeated(&error)) || Instant::now() >= self.until {
                return Err(error);
            }
            if failure == Some(CallFailure::Slow) {
                time *= 2;
            }
            std::thread::sleep(AGAIN);
        }
    }
}

/// Returns whether a repeated call may succeed: the agent has not refused it.
pub(crate) fn is_passing(error: &anyhow::Error) -> bool {
    use CallFailure::{AgentsCertificate, DeviceStopped, HostsCertificate};
    use ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut, UnexpectedEof,
    };
    let is_cut = |cause: &io::Error| {
        let kind = cause.kind();
        matches!(kind, BrokenPipe | ConnectionAborted | ConnectionRefused | ConnectionReset)
            || matches!(kind, TimedOut | UnexpectedEof)
    };
    match FailedCall::cause(error) {
        Some(AgentsCertificate | DeviceStopped | HostsCertificate) => false,
        Some(_) => true,
        None => error.chain().filter_map(|cause| cause.downcast_ref()).any(is_cut),
    }
}

/// Returns whether the agent has not received the request, because there was no connection. Any
/// other request may have started a command.
pub(crate) fn is_unsent(error: &anyhow::Error) -> bool {
    use CallFailure::{NoAnswer, NoGuest, Refused, Unreachable};
    matches!(FailedCall::cause(error), Some(NoAnswer | NoGuest | Refused | Unreachable))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use mote_client::{Flavour, Instance};

    fn of(failure: CallFailure) -> anyhow::Error {
        let instance = Instance::sample(Flavour::Lxd, &[]);
        FailedCall::of_failure(anyhow!("x"), &instance, failure).context("events")
    }

    #[test]
    fn retries_only_calls_that_cannot_have_arrived() {
        let cut = |kind| anyhow::Error::from(io::Error::from(kind));
        for (error, passing, unsent) in [
            (of(CallFailure::Slow), true, false),
            (of(CallFailure::Refused), true, true),
            (of(CallFailure::NoAnswer), true, true),
            (of(CallFailure::HostsCertificate), false, false),
            (cut(ErrorKind::ConnectionReset), true, false),
            (cut(ErrorKind::UnexpectedEof).context("x"), true, false),
            (anyhow!("status 403: no"), false, false),
        ] {
            assert_eq!((is_passing(&error), is_unsent(&error)), (passing, unsent), "{error:#}");
        }
    }

    #[test]
    fn extends_the_limit_after_a_timeout() {
        let mut limits = Vec::new();
        let retry = RetryPolicy::of(Duration::from_secs(100));
        let answer = retry.ask(
            |limit| {
                let Limit::Until(end) = limit else { return Err(anyhow!("no end")) };
                limits.push(end.saturating_duration_since(Instant::now()).as_secs_f64());
                match limits.len() {
                    1 | 3 => Err(of(CallFailure::Slow)),
                    2 => Err(of(CallFailure::Refused)),
                    _ => Ok(limits.len()),
                }
            },
            is_passing,
        );
        assert_eq!(answer.unwrap(), 4);
        for (limit, expected) in limits.iter().zip([5.0, 10.0, 10.0, 20.0]) {
            assert!((expected - 1.0..=expected).contains(limit), "{limits:?}");
        }
    }

    #[test]
    fn does_not_retry_final_or_late_failures() {
        let now = Instant::now();
        let later = now + Duration::from_secs(100);
        let long_ago = now.checked_sub(SETTLES).unwrap();
        for (error, begun, until) in [
            (anyhow!("status 403: no"), now, later),
            (of(CallFailure::Slow), now, now),
            (of(CallFailure::HostsCertificate), long_ago, later),
        ] {
            let mut once = Some(error);
            let call = |_| -> Result<()> { Err(once.take().expect("no second call")) };
            RetryPolicy { begun, until }.ask(call, is_passing).unwrap_err();
        }
    }
}
