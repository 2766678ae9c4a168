//! Child processes. They are all reaped here, and so are orphans when the agent is process 1 (`init` runs it as a child, and reaps them itself).

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use rustix::process::{Pid, Signal as Kill};

use crate::runtime::reactor::Async;
use crate::runtime::wake::Signal;
pub(crate) use crate::sys::Ended;
use crate::sys::fd::{self, OwnedFd};
use crate::sys::{self, Plan};

/// The children not yet reaped.
#[derive(Debug, Default)]
pub(crate) struct Children {
    alive: RefCell<Vec<Rc<Child>>>,
}

/// A child process, leader of a session and a process group.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Reads as its end, or as an errno: see [`sys::spawn`].
    failure: RefCell<Option<OwnedFd>>,
    ended: Cell<Option<Ended>>,
    reaped: Signal,
}

impl Children {
    /// Starts a child.
    ///
    /// # Errors
    /// Any error of pipe(2) or fork(2); later failures are returned by [`Child::started`].
    pub(crate) fn start(&self, plan: &Plan<'_>) -> io::Result<Rc<Child>> {
        let (pid, failure) = sys::spawn(plan)?;
        let failure = RefCell::new(Some(failure));
        let child =
            Rc::new(Child { pid, failure, ended: Cell::default(), reaped: Signal::default() });
        self.alive.borrow_mut().push(child.clone());
        Ok(child)
    }

    /// Reaps all processes that have ended, orphans included. Called for each SIGCHLD, which may stand
    /// for several children.
    pub(crate) fn reap(&self) {
        while let Some((pid, ended)) = sys::reap() {
            let mut alive = self.alive.borrow_mut();
            if let Some(at) = alive.iter().position(|child| child.pid == pid) {
                let child = alive.swap_remove(at);
                if alive.is_empty() {
                    // Free the buffer: it would keep a heap group alive after a burst of children.
                    *alive = Vec::new();
                }
                child.ended.set(Some(ended));
                child.reaped.raise();
            }
        }
    }
}

impl Child {
    /// Waits until the child has executed its program.
    ///
    /// # Errors
    /// The errno with which the child could not enter its directory, change its user, or execute; any error of
    /// read(2).
    pub(crate) async fn started(&self) -> io::Result<()> {
        let Some(failure) = self.failure.borrow_mut().take() else { return Ok(()) };
        let mut errno = [0; 4];
        let count = Async::new_nonblocking(failure)?
            .read_with(|pipe| Ok(fd::read(pipe, &mut errno)?))
            .await?;
        if count == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
        }
    }

    /// Waits until the child is reaped.
    pub(crate) async fn ended(&self) -> Ended {
        self.reaped.until(|| self.ended.get()).await
    }

    /// Has it count as ended by SIGHUP, although it may go on without its terminal or its pipes.
    pub(crate) fn hang_up(&self) {
        self.ended.set(Some(Ended::Signal(Kill::HUP.as_raw())));
        self.reaped.raise();
    }

    /// Sends a signal to the process, not to its group. Does nothing once it is reaped, since its process
    /// id may be in use again.
    pub(crate) fn signal(&self, signal: i32) {
        if self.ended.get().is_none() {
            sys::kill(self.pid, signal);
        }
    }

    /// Kills the child's process group.
    pub(crate) fn kill(&self) {
        if self.ended.get().is_none() {
            sys::kill_group(self.pid);
        }
    }
}
