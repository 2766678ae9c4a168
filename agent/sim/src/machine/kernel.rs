//! The kernel's state of the agents' processes: signals, lock, and listeners that outlive them.

use rustix::process::Pid;

use super::net::{Listener, Open};
use crate::plan::{Ended, Signalled};
use crate::sim_prelude::*;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Started by the service manager of the real root.
    #[default]
    Root,
    /// Started in an initramfs.
    Early,
    /// Started in an initramfs; the process has followed into the real root.
    Left,
}

#[derive(Default)]
pub(crate) struct AgentProcess {
    pub(crate) process: Process,
    pub(crate) stage: Stage,
    pub(crate) signals: RefCell<VecDeque<Signalled>>,
    pub(crate) signalled: Signal,
    /// The listeners for the host: the agent's own, and one that it inherited or took over.
    pub(crate) listens: RefCell<Open>,
    pub(crate) inherited: RefCell<Option<Listener>>,
    /// Whether the re-executed program keeps the listener.
    pub(crate) hands_on: Cell<bool>,
    /// Whether the agent has completed its start, and its rank among all agents.
    pub(crate) has_begun: Cell<bool>,
    pub(crate) rank: Cell<u32>,
    /// Whether the process was killed. It runs until its next wait.
    pub(crate) is_dead: Cell<bool>,
    /// Children that have ended and are not yet reaped.
    pub(crate) ended: RefCell<VecDeque<(Pid, Ended)>>,
    pub(crate) waits: Cell<u32>,
}

/// Re-executes a process.
type Reexec = Rc<dyn Fn(&Rc<AgentProcess>, Stage)>;

#[derive(Default)]
pub(crate) struct Kernel {
    alive: RefCell<BTreeMap<u32, Rc<AgentProcess>>>,
    /// Children, with the agents that started them.
    pub(crate) children: RefCell<BTreeMap<u32, Rc<AgentProcess>>>,
    /// Number of SFTP sessions and of mount workers among them.
    pub(crate) sessions: Cell<usize>,
    pub(crate) mounts: Cell<usize>,
    pub(crate) lock: Cell<Option<u32>>,
    /// Number of device changes, and their wake-up.
    pub(crate) plugged: Signal,
    /// Raised when the VM resumes.
    pub(crate) returned: Signal,
    /// Whether vsock, or the share with the host's files, is missing.
    pub(crate) lacks_vsock: Cell<bool>,
    pub(crate) lacks_files: Cell<bool>,
    /// Another program's listener on the port that the host calls.
    pub(crate) other: RefCell<Option<Listener>>,
    /// Whether process 1 has left the initramfs.
    pub(crate) has_left: Cell<bool>,
    pub(crate) reexec: RefCell<Option<Reexec>>,
}

impl Kernel {
    pub(crate) fn start(
        &self,
        sim: &Sim,
        process: Process,
        stage: Stage,
        inherited: Option<Listener>,
    ) -> Rc<AgentProcess> {
        sim.trace("agent starts", u64::from(stage == Stage::Root), 0);
        let inherited = RefCell::new(inherited);
        let agent = Rc::new(AgentProcess { process, stage, inherited, ..Default::default() });
        self.alive.borrow_mut().insert(process.number, agent.clone());
        agent
    }

    pub(crate) fn find(&self, number: u32) -> Option<Rc<AgentProcess>> {
        self.alive.borrow().get(&number).cloned()
    }

    /// Returns the agents that have not completed their start.
    pub(crate) fn beginning(&self) -> Vec<Rc<AgentProcess>> {
        let alive = self.alive.borrow();
        alive.values().filter(|agent| !agent.has_begun.get()).cloned().collect()
    }

    /// Returns whether another process is between exec(2) and the start of its new program.
    pub(crate) fn is_reexecuting(&self, process: Process) -> bool {
        let alive = self.alive.borrow();
        let mut others = alive.values().filter(|agent| agent.process != process);
        others.any(|agent| !agent.has_begun.get() && agent.inherited.borrow().is_some())
    }

    /// Returns the agent of the running task; `None` if it was killed.
    pub(crate) fn current(&self, sim: &Sim) -> Option<Rc<AgentProcess>> {
        self.find(sim.current()?.number)
    }

    /// Ends it like exit(2) and SIGKILL.
    pub(crate) fn end(&self, sim: &Sim, agent: &Rc<AgentProcess>) {
        agent.is_dead.set(true);
        self.alive.borrow_mut().remove(&agent.process.number);
        if self.lock.get() == Some(agent.process.number) {
            self.lock.set(None);
        }
        let inherited = agent.inherited.take();
        self.orphan(sim, agent);
        sim.kill(agent.process);
        drop(inherited);
    }

    fn orphan(&self, sim: &Sim, parent: &Rc<AgentProcess>) {
        let mut children = self.children.borrow_mut();
        let theirs = children.extract_if(.., |_, of| Rc::ptr_eq(of, parent));
        let theirs: Vec<_> = theirs.map(|(number, _)| number).collect();
        drop(children);
        for number in theirs {
            sim.kill(Process { zone: Zone::Guest, number });
        }
    }

    /// Changes what is missing in the machine.
    pub(crate) fn plug(&self, what: &Cell<bool>, lacks: bool) {
        what.set(lacks);
        self.plugged.raise();
    }
}

impl AgentProcess {
    pub(crate) fn signal(&self, signal: Signalled) {
        self.signals.borrow_mut().push_back(signal);
        self.signalled.raise();
    }
}
