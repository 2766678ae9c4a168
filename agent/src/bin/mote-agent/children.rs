//! Child processes: who waits for which. One place reaps them all, so that orphans are reaped too
//! when we are PID 1.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::process::{Pid, Signal as Kill, WaitOptions, kill_process_group, wait};

use crate::reactor::Async;
use crate::signal::Signal;
use crate::sys::{self, Plan};

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Children that have not been reaped.
#[derive(Debug, Default)]
pub(crate) struct Children {
    alive: RefCell<Vec<Rc<Child>>>,
}

/// A child process, leader of a session and a process group.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Reads as its end, or as an errno: see [`sys::spawn`].
    failure: RefCell<Option<Async<OwnedFd>>>,
    ended: Cell<Option<Ended>>,
    reaped: Signal,
}

impl Children {
    /// Starts a child.
    ///
    /// # Errors
    /// The system's, if there cannot be one at all; what fails later is [`Child::started`]'s.
    pub(crate) fn start(&self, plan: &Plan<'_>) -> io::Result<Rc<Child>> {
        let (pid, failure) = sys::spawn(plan)?;
        let failure = RefCell::new(Some(Async::new_nonblocking(failure)));
        let child =
            Rc::new(Child { pid, failure, ended: Cell::default(), reaped: Signal::default() });
        self.alive.borrow_mut().push(child.clone());
        Ok(child)
    }

    /// Reaps whoever has ended, ours or not. Called for each SIGCHLD; several children may share one.
    pub(crate) fn reap(&self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let ended = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Ended::Code(code),
                (None, Some(signal)) => Ended::Signal(signal),
                // Stopped or continued: not asked for.
                (None, None) => continue,
            };
            let mut alive = self.alive.borrow_mut();
            if let Some(at) = alive.iter().position(|child| child.pid == pid) {
                let child = alive.swap_remove(at);
                child.ended.set(Some(ended));
                child.reaped.raise();
            }
        }
    }
}

impl Child {
    /// Waits until it runs its program.
    ///
    /// # Errors
    /// What the child could not do: enter its directory, change its user, execute.
    pub(crate) async fn started(&self) -> io::Result<()> {
        let Some(failure) = self.failure.borrow_mut().take() else { return Ok(()) };
        let mut errno = [0; 4];
        let count = failure.read_with(|fd| Ok(rustix::io::read(fd, &mut errno)?)).await?;
        if count == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
        }
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> Ended {
        self.reaped.until(|| self.ended.get()).await
    }

    /// Sends a signal to the process alone. Nothing happens once it has ended: its number may be
    /// somebody else's.
    pub(crate) fn signal(&self, signal: i32) {
        if self.ended.get().is_none() {
            sys::kill(self.pid, signal);
        }
    }

    /// Kills it and its whole process group.
    pub(crate) fn kill(&self) {
        if self.ended.get().is_some() {
            return;
        }
        // Right after the fork it leads no group yet.
        if kill_process_group(self.pid, Kill::KILL).is_err() {
            sys::kill(self.pid, Kill::KILL.as_raw());
        }
    }
}
