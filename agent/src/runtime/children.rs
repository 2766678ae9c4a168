//! Starts and reaps child processes, including orphans if the agent is process 1.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use rustix::process::{Pid, Signal as Kill};

use crate::runtime::{Async, Signal};
pub(crate) use crate::sys::Ended;
use crate::sys::fd::{self, OwnedFd};
use crate::sys::{self, Plan};

#[derive(Debug, Default)]
pub(crate) struct Children {
    alive: RefCell<Vec<Rc<Child>>>,
}

#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Reaches end of file once the child runs, or contains an errno; see [`sys::spawn`].
    failure: RefCell<Option<OwnedFd>>,
    ended: Cell<Option<Ended>>,
    reaped: Signal,
}

impl Children {
    /// Starts a child.
    /// Errors: any error of pipe(2) or fork(2); later failures are returned by [`Child::started`].
    pub(crate) fn start(&self, plan: &Plan<'_>) -> io::Result<Rc<Child>> {
        let (pid, failure) = sys::spawn(plan)?;
        let failure = RefCell::new(Some(failure));
        let child =
            Rc::new(Child { pid, failure, ended: Cell::default(), reaped: Signal::default() });
        self.alive.borrow_mut().push(child.clone());
        Ok(child)
    }

    /// Reaps all processes that have ended, orphans included. One SIGCHLD may report several.
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
    /// Errors: the errno of chdir(2), setuid(2) or execve(2) in the child; any error of read(2).
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

    pub(crate) async fn ended(&self) -> Ended {
        self.reaped.until(|| self.ended.get()).await
    }

    /// Marks the child as ended by SIGHUP, even if it continues without its terminal or pipes.
    pub(crate) fn hang_up(&self) {
        self.ended.set(Some(Ended::Signal(Kill::HUP.as_raw())));
        self.reaped.raise();
    }

    /// Signals the process, not its group; does nothing after it is reaped, when its id may be
    /// reused.
    pub(crate) fn signal(&self, signal: i32) {
        if self.ended.get().is_none() {
            sys::kill(self.pid, signal);
        }
    }

    pub(crate) fn kill(&self) {
        if self.ended.get().is_none() {
            sys::kill_group(self.pid);
        }
    }
}
