//! The thread that works in the guest: pushes files, runs the command, pulls files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::retry_policy::{RetryPolicy, is_passing, is_unsent};
use super::share::{Share, mounted};
use mote_client::agent::client::{Agent, connecting};
use mote_client::common::limits;
use mote_client::common::printable::{self, complain};
use mote_client::exec::request::Exec;
use mote_client::exec::run::{self as exec, Asked, End, Running};
use mote_client::files::local_directory::{Missing, Target, place};
use mote_client::files::session::{self, SILENCE, Session};
use mote_client::files::tree::{self, Owner, Pull, Push, Unlike};
use mote_client::net::stream::Limit;

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) agent: Agent,
    pub(crate) exec: Exec,
    pub(crate) shell: Option<Exec>,
    /// The last command, which syncs the guest's disk.
    pub(crate) sync: Option<Exec>,
    pub(crate) shares: Vec<Share>,
    /// Source and target. The sources' paths have no links: the guest may create some.
    pub(crate) push: Vec<(PathBuf, PathBuf)>,
    pub(crate) pull: Vec<(String, String)>,
    /// The time by which the agent must have answered and the command must have started.
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
    /// All work is done, with the command's code.
    Done(u8),
}

/// Takes the job's news; returns whether anybody waits for them.
type Tell<'a> = dyn Fn(Step) -> bool + 'a;

/// Interval of calls to an agent that has reported itself but does not listen yet.
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
        let running = Running::start(agent, &self.exec, events, asked, retry.whole())?;
        tell(Step::Started);
        let End { outcome, body, lost } = running.end();
        for why in lost {
            tell(Step::Lacks(why));
        }
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(why) => return Ok(Err(why)),
        };
        let code = outcome.exit_code()?;
        // Without an error the command itself has exited with such a code.
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

    /// Copies shares that are not mounted, and pushes files.
    fn before(&self, tell: &Tell<'_>) -> Result<()> {
        let mut session = self.session(RetryPolicy::until(self.until))?;
        if !self.shares.is_empty() {
            // This limits a guest that makes a little progress now and then, too.
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

    /// Opens a shell if the command failed, then pulls files. Errors are those of the pulls.
    fn after(&self, code: u8) -> Result<()> {
        if let Some(shell) = self.shell.as_ref().filter(|_| code != 0) {
            complain(&format!("exit code {code}; a shell in the VM, which ends with it"));
            if let Err(error) = self.also(shell) {
                complain(&format!("shell: {error:#}"));
            }
        }
        let fetched = self.fetch();
        if let Some(sync) = &self.sync {
            // An image may have no such program.
            let _as_it_is = self.also(sync);
        }
        fetched
    }

    /// Runs another command.
    fn also(&self, exec: &Exec) -> Result<()> {
        let (agent, retry) = (&self.agent, RetryPolicy::of(AFTER));
        let events = retry.ask(|limit| exec::listen(agent, limit), is_passing)?;
        let asked = retry.ask(|_| Asked::new(agent, exec, retry.whole()), is_unsent)?;
        let _ended = Running::start(agent, exec, events, asked, connecting())?.end();
        Ok(())
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
        // Named as given, or as the resolved path if that has no name, such as `.`.
        let name = from.file_name().or(here.file_name());
        target.push(name.context("/ cannot be copied as a whole")?);
    }
    Ok((here, target))
}

/// Copies a file or directory into the guest.
fn copy(session: &mut Session, from: &Path, to: &Path) -> Result<()> {
    if let Some(above) = to.parent() {
        tree::make_parents(session, above)?;
    }
    let (owner, unlike) = (Owner::default(), Unlike::default());
    Push { session, mode: None, owner, unlike }.tree(from, to)
}
