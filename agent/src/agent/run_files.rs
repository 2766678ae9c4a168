//! State of the files in `/run/mote`: whether the lock is kept, and whether writes succeed.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::time::Duration;

use mote_core::devlxd::ready::ReadyState;
use mote_core::time::Uptime;

use crate::handover::lock::{Kept, Lock};
use crate::runtime::{log, now, run_dir::unwritable};

/// Minimum interval between two checks of the lock.
const LOOKS: Duration = Duration::from_secs(1);

pub(crate) const MOVED: &str = "/run/mote was replaced: writing lock and status to the new one";

pub(crate) struct RunFiles {
    lock: RefCell<Lock>,
    next_look: Cell<Uptime>,
    lost: Cell<bool>,
    /// The state in the ready file; `None` before it is written.
    pub(crate) ready: Cell<Option<ReadyState>>,
    pub(crate) failing: Cell<bool>,
}

impl RunFiles {
    /// Creates the state for the holder of the lock; writes no file.
    pub(crate) fn new(lock: Lock) -> Self {
        let (lost, ready, failing) = Default::default();
        Self { lock: RefCell::new(lock), next_look: Cell::new(now()), lost, ready, failing }
    }

    /// Releases the lock, for an agent that takes over.
    pub(crate) fn release(&self) {
        self.lock.borrow_mut().release();
    }

    /// Checks the lock. Returns true if the directory was replaced and all files must be written
    /// again.
    pub(crate) fn moved(&self, root: &Path) -> bool {
        // One call from the host wakes the agent several times.
        if now() < self.next_look.get() {
            return false;
        }
        self.next_look.set(now() + LOOKS);
        match self.lock.borrow_mut().keep(root) {
            Kept::Same => self.lost.set(false),
            Kept::Renewed => {
                log::info(format_args!("{MOVED}"));
                self.ready.set(None);
                return true;
            }
            Kept::Lost(why) => {
                if !self.lost.replace(true) {
                    log::warn(format_args!("/run/mote is no longer this agent's: {why}"));
                }
            }
        }
        false
    }

    /// Logs the first failed write after a success. Returns whether this write succeeded.
    pub(crate) fn judge(&self, path: &Path, written: io::Result<()>) -> bool {
        if let Err(error) = &written
            && !self.failing.replace(true)
        {
            log::warn(format_args!("{}", unwritable("write", path, error)));
        }
        written.is_ok()
    }
}
