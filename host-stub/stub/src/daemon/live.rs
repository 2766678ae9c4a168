//! An instance while the daemon runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::agent_state::AgentState;
use super::fault::Fault;
use super::vm::Vm;
use mote_client::instance::Instance;

/// An instance and what is known of it while the daemon runs.
pub struct Live {
    /// As on disk.
    pub instance: Instance,
    /// Its agent.
    pub agent: AgentState,
    /// A fault to play.
    pub fault: Fault,
    /// Its guest has called with the right certificate: it runs, whoever started it.
    pub called: bool,
    /// Since when it is seen to run.
    pub running: Option<Instant>,
    /// What QEMU tells of it.
    pub vm: Vm,
    /// Ends the threads that serve it.
    pub life: Life,
}

/// Whether an instance is still served. One that is made anew under the same name has another.
#[derive(Clone, Debug, Default)]
pub struct Life(Arc<AtomicBool>);

impl Life {
    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Ends it.
    pub fn end(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Live {
    /// Nothing is known yet.
    pub fn new(instance: Instance) -> Self {
        Self {
            instance,
            agent: AgentState::default(),
            fault: Fault::None,
            called: false,
            running: None,
            vm: Vm::default(),
            life: Life::default(),
        }
    }

    /// Whether the VM runs. An agent without a VM has nobody who would say so.
    pub fn is_running(&self) -> bool {
        self.instance.is_running() || self.called
    }

    /// In its server's words.
    pub fn status(&self) -> &'static str {
        match (self.is_running(), self.instance.is_ready()) {
            (false, _) => "Stopped",
            (true, _) if self.vm.is_paused() => "Frozen",
            (true, true) => "Ready",
            (true, false) => "Running",
        }
    }
}
