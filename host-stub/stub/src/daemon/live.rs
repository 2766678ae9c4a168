//! An instance while the daemon runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::agent_state::AgentState;
use super::fault::Fault;
use super::vm::Vm;
use mote_client::instance::Instance;

/// An instance and the daemon's knowledge of it.
pub struct Live {
    pub instance: Instance,
    pub agent: AgentState,
    pub fault: Fault,
    /// Whether its guest has called with the right certificate, which proves that it runs.
    pub called: bool,
    /// Since when it is known to run.
    pub running: Option<Instant>,
    /// The VM as QEMU reports it.
    pub vm: Vm,
    /// Ends the threads that serve it.
    pub life: Life,
}

/// Whether an instance is still served. An instance that is created again under the same name has
/// another.
#[derive(Clone, Debug, Default)]
pub struct Life(Arc<AtomicBool>);

impl Life {
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn end(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Live {
    /// Returns an instance of which nothing is known yet.
    pub fn new(instance: Instance) -> Self {
        Self {
            instance,
            agent: AgentState::default(),
            fault: Fault::default(),
            called: false,
            running: None,
            vm: Vm::default(),
            life: Life::default(),
        }
    }

    /// Returns whether the VM runs. Without a monitor, an agent that has called runs.
    pub fn is_running(&self) -> bool {
        self.instance.is_running() || self.called
    }

    /// Returns the status in its server's words.
    pub fn status(&self) -> &'static str {
        match (self.is_running(), self.instance.is_ready()) {
            (false, _) => "Stopped",
            (true, _) if self.vm.is_paused() => "Frozen",
            (true, true) => "Ready",
            (true, false) => "Running",
        }
    }
}
