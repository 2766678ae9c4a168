//! The agent's exit. On SIGTERM it reports STOPPED. On SIGHUP (re-exec) and SIGUSR1 (another agent
//! takes over) it reports nothing.

use std::future::pending;
use std::time::Duration;

use mote_core::leave::{Leave, Load, Step};
use smol::future::FutureExt;

use crate::agent::{Agent, HOST_REQUEST_PERMITS, NEWCOMERS, SESSIONS};
use crate::built;
use crate::handover::reexec::{self, Mode, OldRoot};
use crate::runtime::{Async, Task, log, notify, now, sleep, within};
use crate::sys::{self, SignalSource, Signalled, sandbox};

/// Polling interval while the agent waits to leave or for a switch of the root.
pub(crate) const LEAVE_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum wait for the host to fetch the exit codes of its commands: within the 5 s that init
/// systems allow between SIGTERM and SIGKILL. A host fetches them immediately.
const HANG_UP: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// SIGTERM or SIGINT.
    Stopped,
    Replaced,
}

pub(crate) struct Signals {
    fd: Async<SignalSource>,
    root: OldRoot,
}

impl Signals {
    /// Reads signals from `fd`, and follows process 1 out of `root`.
    pub(crate) fn new(fd: SignalSource, root: OldRoot) -> Result<Self, String> {
        let fd = Async::new_nonblocking(fd).map_err(|error| format!("signals: {error}"))?;
        Ok(Self { fd, root })
    }

    async fn next(&self) -> Result<Signalled, String> {
        let next = self.fd.read_with(sys::next_signal).await;
        next.map_err(|error| format!("signals: {error}"))
    }

    /// Reaps children until a signal ends the agent. Re-execs on SIGHUP or a switch of the root.
    pub(crate) async fn obeyed(&self, agent: &Agent) -> Result<ExitReason, String> {
        let (mut follows, mut mode) = (agent.options.is_early(), Mode::Same);
        let (mut leave, mut is_replaced): (Option<Leave>, _) = (None, false);
        loop {
            let looks = follows || leave.is_some();
            let look = async {
                if !looks {
                    pending::<()>().await;
                }
                sleep(LEAVE_LOOK_INTERVAL).await;
                Ok(None)
            };
            let next = async { self.next().await.map(Some) };
            match next.or(look).await? {
                Some(Signalled::Child) => agent.children.reap(),
                Some(Signalled::Reexec) => {
                    agent.renew_policy();
                    leave.get_or_insert_with(|| Leave::reexec(now()));
                    agent.will_reexec.set(true);
                    agent.status_changed.raise();
                }
                Some(Signalled::Replaced) if agent.options.makes_room() => {
                    // The host may be between two requests that belong to one command.
                    (is_replaced, leave) = (true, Some(Leave::before_takeover(now())));
                }
                Some(Signalled::End) => {
                    agent.drains.set(false);
                    notify::stopping();
                    return Ok(ExitReason::Stopped);
                }
                Some(Signalled::Replaced) | None => {}
            }
            if built::INITRAMFS && follows && self.root.left() {
                (follows, mode) = (false, Mode::Left);
                leave.get_or_insert_with(|| Leave::reexec(now()));
            }
            let step = leave.as_mut().map_or(Step::Wait, |leave| leave.step(now(), load(agent)));
            if step == Step::Leave {
                if is_replaced {
                    return Ok(ExitReason::Replaced);
                }
                reexec(agent, mode);
                leave = None;
                agent.will_reexec.set(false);
            }
            agent.drains.set(step == Step::Drain);
        }
    }
}

fn reexec(agent: &Agent, mode: Mode) {
    log::info(format_args!("restarting in place"));
    if sandbox::is_entered() {
        // The new program needs rights that this process has given up; a supervisor still has them.
        log::info(format_args!(
            "a sandboxed agent cannot re-exec; exiting with code 1 for a restart"
        ));
        sys::exit(1);
    }
    agent.options.transport.hand_on(true);
    reexec::start(mode);
    agent.options.transport.hand_on(false);
}

/// Ends the agent when another takes over: closes its listeners and port and releases the lock, in
/// this order, then waits for the host's commands to end. devlxd's socket keeps its name.
pub(crate) async fn replaced(agent: &Agent, signals: &Signals, tasks: [Task<()>; 2]) {
    notify::stopping();
    for task in tasks {
        task.cancel().await;
    }
    log::info(format_args!("another agent takes over"));
    agent.run_files.release();
    let idle = left(agent, Leave::replaced(now()), load);
    let ended = async {
        while let Ok(signal) = signals.next().await {
            match signal {
                Signalled::Child => agent.children.reap(),
                Signalled::Reexec | Signalled::Replaced => {}
                Signalled::End => break,
            }
        }
    };
    idle.or(ended).await;
}

/// Ends the host's commands that still run. They report exit code 129, as after a terminal's
/// hang-up (P§4.1). Then waits until the host knows all exit codes, and has no open request and no
/// event listener.
pub(crate) async fn hang_up(agent: &Agent) {
    let is_idle = agent.operations.load() == Load::Idle;
    agent.operations.hang_up();
    if !is_idle {
        fetched(agent).await;
    }
}

/// Waits until the host has fetched the results of its commands, at most [`HANG_UP`].
pub(crate) async fn fetched(agent: &Agent) {
    let taken = left(agent, Leave::reexec(now()), |agent| {
        let is_busy = agent.operations.load() != Load::Idle
            || agent.host_requests.free() != HOST_REQUEST_PERMITS
            || agent.newcomers.free() != NEWCOMERS
            || agent.events.hosts() > 0;
        if is_busy { Load::Busy } else { Load::Idle }
    });
    within(HANG_UP, taken).await;
}

async fn left(agent: &Agent, mut leave: Leave, load: fn(&Agent) -> Load) {
    while leave.step(now(), load(agent)) != Step::Leave {
        sleep(LEAVE_LOOK_INTERVAL).await;
    }
}

/// Returns what is in progress. Without `/proc`, which a new root may lack at first, returns busy,
/// because the program could not be found.
fn load(agent: &Agent) -> Load {
    let results = agent.operations.load();
    let listens = agent.events.hosts() > 0;
    let has_requests = agent.host_requests.free() != HOST_REQUEST_PERMITS;
    if agent.sessions.free() != SESSIONS
        || agent.forwards.free() != HOST_REQUEST_PERMITS
        || !sys::is_found()
        || results == Load::Busy
        || has_requests && (listens || results == Load::Results)
    {
        Load::Busy
    } else if results == Load::Results {
        Load::Results
    } else if listens {
        // A host listens before it sends its command.
        Load::Listener
    } else if has_requests {
        Load::Requests
    } else if agent.newcomers.free() != NEWCOMERS {
        Load::Handshakes
    } else if agent.ready.is_held() {
        Load::Guests
    } else {
        Load::Idle
    }
}
