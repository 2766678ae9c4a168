//! Other agents' processes.

use std::os::fd::RawFd;

use crate::sim_prelude::*;
use crate::sys::Signalled;

/// The only relevant open file.
const SOCKET: (RawFd, &[u8]) = (3, b"socket:[1]");

pub(crate) struct Handle(pub(crate) Rc<AgentProcess>);

impl Handle {
    pub(crate) fn of(pid: u64) -> Option<Self> {
        here().kernel.find(u32::try_from(pid).ok()?).map(Self)
    }

    pub(crate) fn replace(&self) {
        self.0.signal(Signalled::Replaced);
    }
}

pub(crate) struct Proc;

pub(crate) struct Process(Rc<AgentProcess>);

impl std::fmt::Debug for Process {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Process({})", self.0.process.number)
    }
}

impl Proc {
    pub(crate) fn open(_: &Path) -> Option<Self> {
        Some(Self)
    }

    pub(crate) fn process(&self, pid: u64) -> Option<Process> {
        Handle::of(pid).map(|handle| Process(handle.0))
    }

    pub(crate) fn own(&self) -> Option<u64> {
        here().sim.current().map(|process| process.number.into())
    }

    /// Returns nothing: no agent is hidden.
    pub(crate) fn locks(&self) -> Vec<u8> {
        Vec::new()
    }
}

impl Process {
    pub(crate) fn is_root(&self) -> bool {
        true
    }

    pub(crate) fn is_of_initramfs(&self) -> bool {
        self.0.stage != Stage::Root && !self.0.is_dead.get()
    }

    pub(crate) fn has_lock(&self, _: u64, _: &[u8]) -> bool {
        false
    }

    pub(crate) fn has_open(&self, is_it: &mut dyn FnMut(RawFd, &[u8]) -> bool) -> bool {
        is_it(SOCKET.0, SOCKET.1)
    }
}

pub(crate) fn taken(_: &[u8]) -> Option<(u64, &[u8])> {
    None
}
