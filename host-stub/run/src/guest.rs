//! What is done in the guest, in a thread of its own: files before, the command, files after.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::patience::{Patience, is_passing, is_unsent};
use super::share::{Access, Share, mounted};
use mote_client::common::limits::{self, Bounded};
use mote_client::common::printable::{self, complain};
use mote_client::exec::request::Exec;
use mote_client::exec::run::{self as exec, Asked, End, Running};
use mote_client::exec::wait::{Disconnected, Outcome as Ended};
use mote_client::files::local_directory::{Missing, Target, place};
use mote_client::files::session::{self, SILENCE, Session};
use mote_client::files::tree::{self, Owner};
use mote_client::instance::Instance;
use mote_client::net::stream::Limit;

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) root: PathBuf,
    pub(crate) instance: Instance,
    pub(crate) exec: Exec,
    /// What is run if that fails.
    pub(crate) shell: Option<Exec>,
    /// What is run after all, to have on disk what was written.
    pub(crate) sync: Option<Exec>,
    pub(crate) shares: Vec<Share>,
    /// Without links that lead there: the guest may make some.
    pub(crate) push: Vec<(PathBuf, PathBuf)>,
    pub(crate) pull: Vec<(String, String)>,
    /// When the agent has to have answered, and the command to be started.
    pub(crate) until: Instant,
}

/// How far it is.
#[derive(Debug)]
pub(crate) enum Step {
    /// How a share is there.
    Shared(String, &'static str),
    /// The command was started.
    Started,
    /// The command has ended with this code, or the guest was lost, and why if that is known.
    Ended(Result<u8, String>),
    /// The guest could not run it, and why; its end follows.
    CannotRun(String),
    /// It could not be started.
    NotRun(anyhow::Error),
    /// Not all that it wrote is here: output could not be written, or files could not be fetched.
    Lacks(String),
    /// All is done.
    Done(u8),
}

/// Between two calls to an agent that has announced itself and does not listen yet.
const AGAIN: Duration = Duration::from_millis(50);
/// For an agent that mounts the shares.
const MOUNTS: Duration = Duration::from_secs(1);
/// For a call after the command.
const AFTER: Duration = Duration::from_secs(60);

impl Job {
    /// Does it, and tells.
    pub(crate) fn run(&self, tell: &Sender<Step>) {
        let say = |step| tell.send(step).is_ok();
        match self.command(tell) {
            Err(error) => drop(say(Step::NotRun(error))),
            Ok(code) => {
                let is_heard = say(Step::Ended(code.clone()));
                if let (true, Ok(code)) = (is_heard, code) {
                    if let Err(error) = self.after(code) {
                        say(Step::Lacks(format!("{error:#}")));
                    }
                    say(Step::Done(code));
                }
            }
        }
    }

    /// The command, with what comes before; its code, or why the guest was lost.
    fn command(&self, tell: &Sender<Step>) -> Result<Result<u8, String>> {
        let (root, instance, patience) = (&self.root, &self.instance, Patience::until(self.until));
        let events = patience.ask(|limit| exec::listen(root, instance, limit), is_passing)?;
        if self.exec.needs_identity() {
            let knows = |limit| exec::knows_users(root, instance, &self.exec, limit);
            patience.ask(knows, is_passing)?;
        }
        if !self.shares.is_empty() || !self.push.is_empty() {
            self.before(tell)?;
        }
        // A request that may have been heard is not sent again: it has all of the time.
        let ask = |_| Asked::new(root, instance, &self.exec, patience.whole());
        let asked = patience.ask(ask, is_unsent)?;
        let limit = Some(patience.whole());
        let running = Running::start(root, instance, &self.exec, events, asked, limit)?;
        let _heard = tell.send(Step::Started);
        let End { outcome, body, lost } = running.end();
        for why in lost {
            let _heard = tell.send(Step::Lacks(why));
        }
        match outcome {
            Err(Disconnected(why)) => Ok(Err(why)),
            Ok(Ended { code: Some(code @ (126 | 127)), error: Some(_) }) => {
                let why = || exec::not_found(root, instance, &body);
                let why = if code == 127 { why() } else { exec::NOT_EXECUTABLE.to_owned() };
                let _heard = tell.send(Step::CannotRun(why));
                Ok(Ok(u8::try_from(code)?))
            }
            Ok(Ended { code: Some(code), error: None }) => Ok(Ok(u8::try_from(code & 0xff)?)),
            ended => exec::exit_code(ended, str::to_owned, String::new).map(Ok),
        }
    }

    fn session(&self, patience: Patience) -> Result<Session> {
        let open = |limit| session::open_within(&self.root, &self.instance, limit);
        patience.ask(open, is_passing)
    }

    /// Shares that are not mounted are copied; files are pushed.
    fn before(&self, tell: &Sender<Step>) -> Result<()> {
        let mut session = self.session(Patience::until(self.until))?;
        if !self.shares.is_empty() {
            // A guest that sends a byte now and then is not waited for.
            session.stream.limit(Patience::until(self.until).whole());
            let list = self.mounts(&mut session)?;
            session.stream.limit(Limit::Each(SILENCE));
            for share in &self.shares {
                let way = match mounted(&list, &share.target) {
                    Some("virtiofs") => "virtiofs",
                    Some(_) => "9p",
                    None => {
                        copy(&mut session, &share.source, Path::new(&share.target))?;
                        if share.access == Access::Write {
                            complain(&format!(
                                "{} is a copy in the guest, and what is written there is lost: this machine and the \
                                 guest have neither virtiofs nor 9p in common (with :ro this is not said)",
                                share.target
                            ));
                        }
                        "copy"
                    }
                };
                let _heard = tell.send(Step::Shared(share.target.clone(), way));
            }
        }
        self.push.iter().try_for_each(|(from, to)| copy(&mut session, from, to))
    }

    /// The guest's mounts, as soon as the shares are among them, or after a while.
    fn mounts(&self, session: &mut Session) -> Result<String> {
        let end = Instant::now() + MOUNTS;
        loop {
            let mut list = Bounded::new(limits::MOUNTS);
            tree::pull_file(session, Path::new("/proc/mounts"), &mut list)?;
            let list = String::from_utf8_lossy(&list.bytes).into_owned();
            let is_there = |share: &Share| mounted(&list, &share.target).is_some();
            if self.shares.iter().all(is_there) || Instant::now() > end {
                return Ok(list);
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// A shell if it failed, and files; an error is one of these.
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

    /// Runs something else.
    fn also(&self, exec: &Exec) -> Result<()> {
        let (root, instance, patience) = (&self.root, &self.instance, Patience::of(AFTER));
        let events = patience.ask(|limit| exec::listen(root, instance, limit), is_passing)?;
        let asked =
            patience.ask(|_| Asked::new(root, instance, exec, patience.whole()), is_unsent)?;
        let _ended = Running::start(root, instance, exec, events, asked, None)?.end();
        Ok(())
    }

    fn fetch(&self) -> Result<()> {
        if self.pull.is_empty() {
            return Ok(());
        }
        let mut session = self.session(Patience::of(AFTER))?;
        let fetch = |(from, to): &(String, String)| {
            let from = Path::new("/").join(from);
            place(&from, Path::new(to), Target::Any, Missing::Refuse)
                .and_then(|to| tree::pull(&mut session, &from, to))
                .with_context(|| format!("--pull {}", printable::name(&from)))
        };
        self.pull.iter().try_for_each(fetch)
    }
}

/// What is pushed from where, a path without links, and to where. A link that is named stands for what it leads to, which is not
/// there; those in a directory stay links.
pub(crate) fn pushed((from, to): &(String, String)) -> Result<(PathBuf, PathBuf)> {
    let from = Path::new(from);
    let here = from.canonicalize().with_context(|| from.display().to_string())?;
    let mut target = Path::new("/").join(to);
    if to.ends_with('/') {
        // By the name that was said, unless that is none, as `.` is.
        let name = from.file_name().or(here.file_name());
        target.push(name.context("/ cannot be copied as a whole")?);
    }
    Ok((here, target))
}

/// Copies something into the guest.
fn copy(session: &mut Session, from: &Path, to: &Path) -> Result<()> {
    if let Some(above) = to.parent() {
        tree::make_parents(session, above)?;
    }
    tree::push(session, from, to, None, Owner::default())
}
