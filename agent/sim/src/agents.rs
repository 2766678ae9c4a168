//! Tracks the agents of a scenario.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::agent::Agent;
use crate::machine::{AgentProcess, Micros, Stage};

#[derive(Default)]
pub(crate) struct AgentTracker {
    pub(crate) last: RefCell<Option<Rc<AgentProcess>>>,
    pub(crate) running: RefCell<Option<Running>>,
    /// When the last agent was started, until it serves.
    pub(crate) starting: Cell<Option<Micros>>,
    /// Since when everything that a start needs is available.
    pub(crate) whole: Cell<Micros>,
    /// When the previous agent ended.
    pub(crate) freed: Cell<Micros>,
    /// When it was asked to end.
    pub(crate) stopping: Cell<Option<Micros>>,
}

/// An agent that serves, and the start of its service in time awake.
pub(crate) struct Running {
    pub(crate) process: Rc<AgentProcess>,
    pub(crate) agent: Rc<Agent>,
    pub(crate) begun: Micros,
    /// Whether it was started without vsock.
    pub(crate) is_alone: bool,
}

impl AgentTracker {
    pub(crate) fn agent(&self) -> Option<Rc<Agent>> {
        self.running.borrow().as_ref().map(|running| running.agent.clone())
    }

    pub(crate) fn process(&self) -> Option<Rc<AgentProcess>> {
        self.running.borrow().as_ref().map(|running| running.process.clone())
    }

    /// Whether an initramfs started the first agent, so that a second takes over from it.
    pub(crate) fn makes_room(&self) -> bool {
        self.process().is_some_and(|agent| agent.stage != Stage::Root)
    }

    pub(crate) fn number(&self) -> Option<u32> {
        self.process().map(|agent| agent.process.number)
    }

    pub(crate) fn clear(&self) {
        self.running.take();
        self.last.take();
    }
}
