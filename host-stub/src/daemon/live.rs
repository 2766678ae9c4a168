//! An instance while the daemon runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::agent_state::AgentState;
use super::fault::Fault;
use super::vm::Vm;
use crate::instance::Instance;

/// An instance and what is known of it while the daemon runs.
pub(crate) struct Live {
    /// As on disk.
    pub(crate) instance: Instance,
    /// Its agent.
    pub(crate) agent: AgentState,
    /// A fault to play.
    pub(crate) fault: Fault,
    /// Its guest has called with the right certificate: it runs, whoever started it.
    pub(crate) called: bool,
    /// Since when it is seen to run.
    pub(crate) running: Option<Instant>,
    /// What QEMU tells of it.
    pub(crate) vm: Vm,
    /// Ends the threads that serve it.
    pub(crate) life: Life,
}

/// Whether an instance is still served. One that is made anew under the same name has another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life(Arc<AtomicBool>);

impl Life {
    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Live {
    /// Nothing is known yet.
    pub(crate) fn new(instance: Instance) -> Self {
        Self {
            instance,
            agent: AgentState::new(),
            fault: Fault::None,
            called: false,
            running: None,
            vm: Vm::default(),
            life: Life::default(),
        }
    }

    /// Whether the VM runs. An agent without a VM has nobody who would say so.
    pub(crate) fn is_running(&self) -> bool {
        self.instance.is_running() || self.called
    }

    /// In its server's words.
    pub(crate) fn status(&self) -> &'static str {
        match (self.is_running(), self.instance.is_ready()) {
            (false, _) => "Stopped",
            (true, _) if self.vm.is_paused() => "Frozen",
            (true, true) => "Ready",
            (true, false) => "Running",
        }
    }
}
