//! The state that tasks share. Cells suffice for one thread; no borrow is held across an await.

pub(crate) mod errors;
pub(crate) mod event_bus;
pub(crate) mod exec_sockets;
pub(crate) mod host;
pub(crate) mod operation_table;
pub(crate) mod run_files;

pub(crate) use errors::{About, Called, REFUSED};
pub(crate) use event_bus::{Events, Listener};
pub(crate) use exec_sockets::Sockets;
pub(crate) use operation_table::{Operation, Operations};

use std::cell::{Cell, RefCell};
use std::fmt::{Arguments, Display};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::ready::Ready;
use mote_core::flavour::Flavour;
use mote_core::hostapi::info::{write_error, write_sync};
use mote_core::hostapi::policy::Capability;
use mote_core::json::{Document, Value};
use mote_core::rate::LogLimit;
use mote_core::status::{Intervals, State, Status};
use mote_core::time::Uptime;

use crate::agent::errors::Errors;
use crate::agent::run_files::RunFiles;
use crate::built::{self, BoxFuture};
use crate::config::policy::{self, InForce};
use crate::handover::lock::Lock;
use crate::net::host_call::Link;
use crate::net::serve::{Answer, Reply};
use crate::net::tls::Identity;
use crate::options::Options;
use crate::runtime::children::Children;
use crate::runtime::run::Executor;
use crate::runtime::{Semaphore, Signal, Task, log, now, run_dir, text_of};
use crate::sys::sandbox;

/// Minimum interval between log lines about callers with another certificate: a real host calls for
/// each request of its user, and any program on the host can call endlessly.
pub(crate) const UNKNOWN_CALLER_LOG_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval between log lines about the same shortage, which each call would repeat.
pub(crate) const SHORTAGES: Duration = Duration::from_secs(10);
/// Number of permits in [`Agent::host_requests`] and `forwards`: more than there are connections.
pub(crate) const HOST_REQUEST_PERMITS: usize = 1 << 16;
/// Maximum number of handshakes. Any program of the host can begin one, which takes up to 25 kB.
pub(crate) const NEWCOMERS: usize = 128;
/// Maximum number of concurrent sessions. Beyond it: 503.
pub(crate) const SESSIONS: usize = 64;
/// Minimum interval between log lines about denied requests, which the host can repeat endlessly.
pub(crate) const REFUSALS: Duration = Duration::from_secs(10);
/// Time limit for the host's first call: it reads the port every 10 s (P§2.3), and calls for 3 s
/// (P§3.2).
const UNHEARD: Duration = Duration::from_secs(20);
/// Error text if the host has not called within [`UNHEARD`].
const NO_CALL: &str = "the host has not called: does it read this port (name, chardev)?";
/// Beginning of the error text for a caller with another certificate.
const OTHER_CALLER: &str = "refused a caller whose certificate is not server.crt";

pub(crate) struct Agent {
    pub(crate) options: Options,
    pub(crate) flavour: Flavour,
    pub(crate) policy: InForce,
    /// Our certificate, and the caller's.
    pub(crate) identity: Identity,
    pub(crate) status: RefCell<Status>,
    /// Raised when `status` may have something to do.
    pub(crate) status_changed: Signal,
    /// Raised when the status channel was woken, and when a connection of the host has ended.
    pub(crate) woken: Signal,
    pub(crate) nic_added: Signal,
    /// Whether a program has set the wall clock.
    pub(crate) clock_set: Cell<bool>,
    /// Earliest time of the next comparison of the wall clock with the RTC.
    pub(crate) next_look: Cell<Uptime>,
    pub(crate) watches_resume: Cell<bool>,
    /// Raised by `resume` after each comparison of the clocks, and after a resume's work.
    pub(crate) resume_handled: Signal,
    /// The link that was used last, for its TLS state. `status` decides which host is called.
    pub(crate) link: RefCell<Option<Rc<Link>>>,
    /// True while devlxd is on: host and policy allow it.
    pub(crate) devlxd: Cell<bool>,
    /// devlxd's socket, if it was created before the sandbox, which forbids that.
    pub(crate) guests: Option<OwnedFd>,
    pub(crate) devlxd_changed: Signal,
    /// One permit, because device events are handled one after another.
    pub(crate) device_event_lock: Rc<Semaphore>,
    pub(crate) events: Rc<Events>,
    /// The last state that an application set, and the Ready lock.
    pub(crate) ready: Ready,
    pub(crate) ready_released: Signal,
    pub(crate) errors: RefCell<Errors>,
    pub(crate) called: Cell<Called>,
    pub(crate) will_reexec: Cell<bool>,
    /// Rate limit for log lines about callers with another certificate.
    pub(crate) unknown_callers: RefCell<LogLimit>,
    /// Rate limit for log lines about descriptors or memory that this agent lacks.
    pub(crate) shortages: RefCell<LogLimit>,
    /// Rate limit for log lines about what the policy refuses.
    pub(crate) refusals: RefCell<LogLimit>,
    pub(crate) run_files: RunFiles,
    /// Source of the host's files, for the status file.
    pub(crate) files: String,
    pub(crate) operations: Operations,
    /// A permit for each request of the host until its answer ends.
    pub(crate) host_requests: Rc<Semaphore>,
    /// A permit for each forwarded connection.
    pub(crate) forwards: Rc<Semaphore>,
    pub(crate) newcomers: Rc<Semaphore>,
    /// True while callers are left in the listen queue.
    pub(crate) drains: Cell<bool>,
    pub(crate) sessions: Rc<Semaphore>,
    pub(crate) children: Children,
    /// Runs the tasks, some of which hold the agent. So both live until the process ends.
    pub(crate) executor: Executor,
}

impl Agent {
    pub(crate) fn new(
        options: Options,
        flavour: Flavour,
        policy: InForce,
        identity: Identity,
        files: String,
        lock: Lock,
    ) -> Self {
        let [connect, started, connected] = options.intervals;
        let default = Intervals::default();
        let intervals = Intervals {
            connect: connect.unwrap_or(default.connect),
            started: started.unwrap_or(default.started),
            connected: connected.unwrap_or(default.connected),
        };
        let events = Rc::new(Events::new());
        let ready = Ready::restore(text_of(&options.root, run_dir::READY).as_bytes());
        Self {
            policy,
            options,
            flavour,
            identity,
            status: RefCell::new(Status::new(now(), intervals)),
            status_changed: Signal::default(),
            woken: Signal::default(),
            nic_added: Signal::default(),
            clock_set: Cell::default(),
            next_look: Cell::default(),
            watches_resume: Cell::default(),
            resume_handled: Signal::default(),
            link: RefCell::default(),
            devlxd: Cell::new(false),
            guests: None,
            devlxd_changed: Signal::default(),
            device_event_lock: Rc::new(Semaphore::new(1)),
            events: events.clone(),
            ready,
            ready_released: Signal::default(),
            errors: RefCell::default(),
            called: Cell::new(Called::Never),
            will_reexec: Cell::new(false),
            unknown_callers: RefCell::new(LogLimit::new(UNKNOWN_CALLER_LOG_INTERVAL)),
            shortages: RefCell::new(LogLimit::new(SHORTAGES)),
            refusals: RefCell::new(LogLimit::new(REFUSALS)),
            run_files: RunFiles::new(lock),
            files,
            operations: Operations::new(flavour, events),
            host_requests: Rc::new(Semaphore::new(HOST_REQUEST_PERMITS)),
            forwards: Rc::new(Semaphore::new(HOST_REQUEST_PERMITS)),
            newcomers: Rc::new(Semaphore::new(NEWCOMERS)),
            drains: Cell::new(false),
            sessions: Rc::new(Semaphore::new(SESSIONS)),
            children: Children::default(),
            executor: Executor::new(),
        }
    }

    /// Starts a task that runs to its end.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.task(task).detach();
    }

    /// Starts a task that is cancelled when the returned handle is dropped. All are boxed to one
    /// type: the executor's code for each type is more than half a kilobyte.
    pub(crate) fn task(&self, task: impl Future<Output = ()> + 'static) -> Task<()> {
        self.boxed_task(Box::pin(task))
    }

    pub(crate) fn boxed_task(&self, task: BoxFuture<'static>) -> Task<()> {
        self.executor.spawn(task)
    }

    pub(crate) fn status<T>(&self, change: impl FnOnce(&mut Status) -> T) -> T {
        let result = change(&mut self.status.borrow_mut());
        self.status_changed.raise();
        result
    }

    pub(crate) fn state(&self) -> State {
        self.status.borrow().state()
    }

    pub(crate) fn report_error(&self, text: Arguments<'_>) {
        self.report_error_about(About::Else, text.to_string());
    }

    /// Like `report_error`, for an error that [`Agent::clear_error`] can clear.
    pub(crate) fn report_error_about(&self, about: About, text: String) {
        log::warn(format_args!("{text}"));
        self.note(about, text);
    }

    /// Adds an error that was logged already to the status file.
    pub(crate) fn note(&self, about: About, text: String) {
        *self.errors.borrow_mut().about(about) = Some(text);
        self.status_changed.raise();
    }

    pub(crate) fn clear_error(&self, about: About) {
        *self.errors.borrow_mut().about(about) = None;
    }

    /// Checks for a resume now and, after one, waits until the random number generator is reseeded
    /// and the clock is stepped. Otherwise the host's first command after a resume would see the
    /// old time.
    pub(crate) async fn settled(&self) {
        if self.watches_resume.get() {
            let handled = self.resume_handled.seen();
            self.next_look.take();
            self.woken.raise();
            self.resume_handled.after(handled).await;
        }
    }

    /// Notes a call with the host's certificate.
    pub(crate) fn heard(&self) {
        if self.called.replace(Called::Yes) != Called::Yes {
            self.clear_error(About::Caller);
            self.status_changed.raise();
        }
    }

    /// Returns whether the host has called in this boot, or has read the status port.
    pub(crate) fn has_called(&self) -> bool {
        self.called.get() != Called::Never || self.status.borrow().is_heard()
    }

    /// Records that the host does not call although it seems to run: it does not read the port, or
    /// its calls do not arrive. Each host calls an agent that is new to it (P§2.3). `doubt` tells
    /// why the host may read another port.
    pub(crate) fn miss_call(&self, doubt: Option<&str>) {
        let lasts = now() - self.status.borrow().since();
        let is_known = self.errors.borrow().is_of_host();
        if built::STATE && lasts >= UNHEARD && !is_known && !self.has_called() {
            self.report_error_about(About::Caller, doubt.unwrap_or(NO_CALL).into());
        }
    }

    /// Notes that a call to the host, made in that state, failed.
    pub(crate) fn report_host_error(&self, made_in: State, why: &str) {
        let lost = made_in == State::Connected && !why.starts_with(REFUSED);
        let lost = if lost { "lost host: " } else { "" };
        self.report_error_about(About::Host, format!("{lost}{why}"));
    }

    /// Records that descriptors or memory are used up. Keeps the host's error in the status file.
    pub(crate) fn shortage(&self, why: &str) {
        if let Some(often) = again(&self.shortages) {
            log::warn(format_args!("{why}{often}"));
        }
    }

    /// Records a caller whose certificate differs from `server.crt`. If the host has called before,
    /// this caller is another program.
    pub(crate) fn unknown_caller(&self) {
        let Some(often) = again(&self.unknown_callers) else { return };
        let why = format!("{OTHER_CALLER}{often}: is this another host's share?");
        if self.called.get() == Called::Yes {
            log::warn(format_args!("{why}"));
        } else {
            self.report_error_about(About::Caller, why);
        }
    }

    pub(crate) fn refused(&self, why: &str) {
        if let Some(often) = again(&self.refusals) {
            log::info(format_args!("policy: the host was refused{often}: {why}"));
        }
    }

    /// Reads the policy's files again. The new policy applies from the host's next action. It can
    /// switch devlxd off; only the host can switch devlxd on.
    #[cold]
    pub(crate) fn renew_policy(&self) {
        if sandbox::is_entered() {
            return self.policy.close();
        }
        self.policy.take(policy::read(&self.options));
        self.allow_devlxd(self.devlxd.get());
        self.status_changed.raise();
    }

    /// Switches devlxd on or off; it stays off if the guest's policy denies it.
    pub(crate) fn allow_devlxd(&self, allowed: bool) {
        let allowed = allowed && self.policy.allows(Capability::GuestApi);
        if self.devlxd.replace(allowed) != allowed {
            self.devlxd_changed.raise();
        }
    }
}

/// Rate-limits a log line: returns how often it was suppressed, or `None` to suppress it now.
fn again(limit: &RefCell<LogLimit>) -> Option<String> {
    let held = limit.borrow_mut().report(now())?;
    Some(if held > 0 { format!(" ({held} more before)") } else { String::new() })
}

/// Maximum size of an envelope without its content, in bytes.
pub(crate) const ENVELOPE: usize = 128;

/// Returns a success answer (`sync`, 200) with this metadata.
pub(crate) fn sync(metadata: Value<'_>) -> Answer {
    Answer::Reply(sync_reply(metadata))
}

pub(crate) fn sync_reply(metadata: Value<'_>) -> Reply {
    let capacity = metadata.raw().len() + ENVELOPE;
    Reply::json(200, Document::new(capacity, |json| write_sync(json, metadata)).line())
}

/// Returns an error answer; `status` is also its `error_code`.
pub(crate) fn error(status: u16, text: &str) -> Answer {
    Answer::Reply(error_reply(status, text))
}

pub(crate) fn error_by(status: u16, why: &dyn Display) -> Answer {
    error(status, &why.to_string())
}

pub(crate) fn error_reply(status: u16, text: &str) -> Reply {
    let capacity = text.len() + 128;
    Reply::json(status, Document::new(capacity, |json| write_error(json, status, text)).line())
}
