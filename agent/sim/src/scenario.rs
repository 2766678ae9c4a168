//! The parts of a scenario, how it begins, and what must hold after a calm period.

use mote_core::devlxd::quota::{Bounds, Quota};

use crate::below::here::enter;
use crate::guest::{Guest, application, visitor};
use crate::host::daemon::{Host, Nature};
use crate::host::pipes::ECHO;
use crate::host::port::{Backend, Qemu};
use crate::programs::echo;
use crate::sim_prelude::*;
use crate::supervisor::AgentTracker;

const POLL: Micros = 5 * SECOND;
/// Number of full handshakes after which a ticket must have been used.
const FULL: u64 = 6;
/// Descriptor limits of an agent, from few to many.
const DESCRIPTORS: [usize; 3] = [24, 48, 1024];

pub(crate) struct Scenario {
    pub(crate) sim: Rc<Sim>,
    pub(crate) net: Rc<Net>,
    pub(crate) qemu: Rc<Qemu>,
    pub(crate) oracle: Rc<Oracle>,
    pub(crate) host: Rc<Host>,
    pub(crate) flavour: Flavour,
    bounds: Bounds,
    pub(crate) denied: &'static str,
    pub(crate) agents: AgentTracker,
    guest: Rc<Guest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub hash: u64,
    /// The violated rule, and when.
    pub failure: Option<String>,
    pub answers: u64,
    pub connects: u64,
    /// Virtual time.
    pub length: Micros,
}

impl Scenario {
    pub(crate) fn new(dice: Dice, is_loud: bool) -> Rc<Self> {
        let sim = Sim::new(dice, is_loud);
        let dice = &sim.dice;
        let flavour = dice.pick(&[Flavour::Lxd, Flavour::Lxd, Flavour::Incus]);
        let backend = match (dice.below(4), flavour) {
            (0, _) => Backend::Line,
            (1, Flavour::Incus) => Backend::LongRing,
            _ => Backend::Ring,
        };
        let denied = if dice.one_in(3) { "exec" } else { "" };
        let says_ready_again = !dice.one_in(8);
        let descriptors = dice.pick(&DESCRIPTORS);
        let bounds = Bounds::of(descriptors);
        let net = Net::new(sim.clone());
        let qemu = Qemu::new(sim.clone(), backend);
        let oracle = Oracle::new(sim.clone(), says_ready_again);
        let nature = Nature {
            flavour,
            gives_tickets: !dice.one_in(4),
            // In addition to calls for guests, the agent verifies the host and reports Ready.
            most: bounds.most(Quota::Call) + bounds.most(Quota::LongPoll) + 8,
        };
        let host = Host::new(sim.clone(), net.clone(), qemu.clone(), oracle.clone(), nature);
        host.may_exec.set(denied.is_empty());
        let guest = Rc::new(Guest {
            sim: sim.clone(),
            net: net.clone(),
            oracle: oracle.clone(),
            flavour,
            turns: if bounds.most(Quota::Call) < 16 { 4 } else { 1 },
        });
        enter(Rc::new(Here {
            lacking: Cell::default(),
            kernel: Rc::default(),
            conf: RefCell::default(),
            sim: sim.clone(),
            net: net.clone(),
            qemu: qemu.clone(),
            oracle: oracle.clone(),
            files: RefCell::default(),
            descriptors,
            guests: Cell::default(),
            // A new connection is accepted before the agent closes others for it, and those end
            // together. Listeners count separately.
            most_guests: bounds.connections + bounds.most(Quota::Listener) + bounds.at_once() + 1,
        }));
        if backend == Backend::Line || dice.one_in(2) {
            // `agent.conf` as of the VM's start. It reports whether devlxd is enabled, which a line
            // does not.
            *here().conf.borrow_mut() = Some(host.body().into_bytes());
        }
        let agents = AgentTracker::default();
        Rc::new(Self { sim, net, qemu, oracle, host, flavour, bounds, denied, agents, guest })
    }

    fn watch(&self) {
        let Some(agent) = self.agents.agent() else { return };
        if let Ok(status) = agent.status.try_borrow() {
            self.oracle.agent_is(status.state(), status.address().map(|address| address.port));
        }
    }

    pub(crate) fn populate(self: &Rc<Self>, visitors: u64) {
        self.restarts();
        let process = self.sim.process(Zone::Guest);
        for _ in 0..visitors {
            self.sim.spawn(process, visitor(self.guest.clone()));
        }
        let listener = self.net.listen(Place::Tcp(ECHO));
        let sim = self.sim.clone();
        self.sim.spawn(process, async move {
            loop {
                let stream = listener.accept().await;
                sim.spawn(process, async move { echo(&here(), &stream).await });
            }
        });
        self.sim.spawn(process, application(self.guest.clone()));
        let scenario = Rc::downgrade(self);
        self.sim.watch(move || scenario.upgrade().iter().for_each(|scenario| scenario.watch()));
        let scenario = self.clone();
        self.sim.spawn(self.sim.process(Zone::Host), async move {
            loop {
                sleep(&scenario.sim, Zone::Host, SECOND).await;
                scenario.oracle.look();
                scenario.look_at_agents();
            }
        });
    }

    pub(crate) fn crowd(&self, length: Micros) {
        self.sim.trace("crowd", length, 0);
        for _ in 0..self.bounds.connections {
            let (sim, net, oracle) = (self.sim.clone(), self.net.clone(), self.oracle.clone());
            self.sim.spawn(self.sim.process(Zone::Guest), async move {
                let stream = net.connect(Place::Devlxd, Zone::Guest).await;
                // The new connection may evict one whose request is still in flight.
                oracle.excuse_guests();
                sleep(&sim, Zone::Guest, length).await;
                drop(stream);
            });
        }
    }

    /// Repairs everything, and starts regular requests.
    pub(crate) fn calm(self: &Rc<Self>) {
        self.sim.trace("calm", 0, 0);
        // A connection that has just broken has no answer.
        self.oracle.excuse();
        self.net.mishaps.set(0);
        self.net.mishaps_inside.set(0);
        self.host.refuses.set(false);
        self.host.hang(false);
        self.host.handshakes.iter().for_each(|count| count.set(0));
        let guest = self.guest.clone();
        self.sim.spawn(self.sim.process(Zone::Guest), async move {
            loop {
                let poller = guest.clone();
                let process = guest.sim.process(Zone::Guest);
                guest.sim.spawn(process, async move { drop(poller.poll().await) });
                sleep(&guest.sim, Zone::Guest, POLL).await;
            }
        });
    }

    /// Takes away or restores the agent's descriptors. That must not count as a lost host.
    pub(crate) fn starve(&self, lacks: bool) {
        self.sim.trace("descriptors", u64::from(lacks), 0);
        here().lacking.set(lacks);
        self.oracle.keeps_host.set(lacks && self.disagreement().is_none());
    }

    /// Returns why agent and host disagree, if they do.
    pub(crate) fn disagreement(&self) -> Option<String> {
        let Some(agent) = self.agents.agent() else { return Some("there is no agent".into()) };
        let (state, port) = (agent.state(), self.host.port.get());
        let address = agent.status.borrow().address();
        if state != State::Connected {
            return Some(format!("the host is reachable, but the agent is {}", state.name()));
        }
        if address.is_none_or(|address| address.port != port) {
            return Some(format!("CONNECTED to {address:?}, but the host is at port {port}"));
        }
        if self.qemu.backend != Backend::Line && !self.host.started.get() {
            return Some("CONNECTED, but the host considers it stopped".into());
        }
        None
    }

    pub(crate) fn judge(&self) -> Outcome {
        if let Some(why) = self.disagreement() {
            self.sim.fail(why);
        }
        self.oracle.host_keeps(self.host.keeps.get());
        let [full, resumed] = &self.host.handshakes;
        if self.host.nature.gives_tickets && full.get() >= FULL && resumed.get() == 0 {
            self.sim.fail(format!("{} tickets, but none is used", full.get()));
        }
        self.outcome()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.host.die();
        self.agents.clear();
        self.sim.clear();
        *here().kernel.reexec.borrow_mut() = None;
        Outcome {
            hash: self.sim.hash(),
            failure: self.sim.failure(),
            answers: self.oracle.answers.get(),
            connects: self.oracle.connects.get(),
            length: self.sim.now(Zone::Host),
        }
    }
}
