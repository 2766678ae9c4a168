//! All that there is in a history, how it begins, and what must be so when it has been quiet for a while.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mote_core::devlxd::quota::{Bounds, Quota};
use mote_core::flavour::Flavour;
use mote_core::status::State;

use crate::agent::Agent;
use crate::below::here::{Here, enter, here};
use crate::config::policy::{self, InForce};
use crate::guest::{Guest, application, visitor};
use crate::handover::lock::Lock;
use crate::host::daemon::{Host, Nature};
use crate::host::port::{Backend, Qemu};
use crate::machine::dice::Dice;
use crate::machine::executor::{MILLI, Micros, SECOND, Sim, Zone};
use crate::machine::net::{Net, Place};
use crate::machine::wait::sleep;
use crate::net::tls::Identity;
use crate::options::{self, Options};
use crate::oracle::Oracle;
use crate::runtime::clock::now;
use crate::status::pump;
use crate::transport::Listener;
use crate::{devlxd, hostapi};

/// The first line comes when the port is found, at most 200 ms after an older one; it is looked for every 100 ms,
/// and once it has been away for 10 s every second.
const FIRST: Micros = 500 * MILLI;
const FIRST_LATE: Micros = 1_400 * MILLI;
const LATE: Micros = 9 * SECOND;
/// If it becomes CONNECTED meanwhile, the silent line 1.5 s later is the first.
const REFRESH: Micros = 2 * SECOND;
/// STARTED is announced each second; between STOPPED and STARTED are 1.5 s (decisions §1).
const STARTED: Micros = 2 * SECOND;
/// A silent STARTED keeps the ring full, 5 s apart; a port that is no ring gets a line every 30 s (decisions §1).
const SILENT: Micros = 5_500 * MILLI;
const CONNECTED: Micros = 30_500 * MILLI;
/// How often a program in the guest asks something.
const POLL: Micros = 5 * SECOND;
/// So many full handshakes are enough to have used a ticket.
const FULL: u64 = 6;
/// A machine with few descriptors, and one with many.
const DESCRIPTORS: [usize; 3] = [24, 48, 1024];

/// All that there is.
pub(crate) struct World {
    pub(crate) sim: Rc<Sim>,
    pub(crate) net: Rc<Net>,
    pub(crate) qemu: Rc<Qemu>,
    pub(crate) oracle: Rc<Oracle>,
    pub(crate) host: Rc<Host>,
    flavour: Flavour,
    bounds: Bounds,
    denied: &'static str,
    agent: RefCell<Option<Running>>,
    guest: Rc<Guest>,
}

/// An agent, and its start in time awake.
struct Running {
    agent: Rc<Agent>,
    begun: Micros,
}

/// What a history came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of all that happened.
    pub hash: u64,
    /// The rule that does not hold, and when.
    pub failure: Option<String>,
    /// Requests of guests that were answered.
    pub answers: u64,
    /// Times that the agent became CONNECTED.
    pub connects: u64,
    /// Virtual time.
    pub length: Micros,
}

impl World {
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
            // Beside those for guests: verifications, Ready.
            most: bounds.most(Quota::Call) + bounds.most(Quota::LongPoll) + 8,
            exec: if denied.is_empty() { 202 } else { 403 },
        };
        let host = Host::new(sim.clone(), net.clone(), qemu.clone(), oracle.clone(), nature);
        let guest = Rc::new(Guest {
            sim: sim.clone(),
            net: net.clone(),
            oracle: oracle.clone(),
            flavour,
            turns: if bounds.most(Quota::Call) < 16 { 4 } else { 1 },
        });
        enter(Rc::new(Here {
            lacking: Cell::default(),
            sim: sim.clone(),
            net: net.clone(),
            qemu: qemu.clone(),
            oracle: oracle.clone(),
            files: RefCell::default(),
            descriptors,
            guests: Cell::default(),
            // A newcomer is accepted first, and those who are closed for the newest go together. Listeners count apart.
            most_guests: bounds.connections + bounds.most(Quota::Listener) + bounds.at_once() + 1,
        }));
        let agent = RefCell::default();
        Rc::new(Self { sim, net, qemu, oracle, host, flavour, bounds, denied, agent, guest })
    }

    fn options(&self) -> Options {
        let flavour = match self.flavour {
            Flavour::Incus => "incus",
            Flavour::Lxd | Flavour::LxdOld => "lxd",
        };
        let mut words = vec!["mote-agent", "--root", "/simulated", "--flavour", flavour];
        if !self.denied.is_empty() {
            words.extend(["--deny", self.denied]);
        }
        if !self.oracle.says_ready_again {
            words.push("--no-replay-ready");
        }
        options::parse(words.into_iter().map(Into::into)).expect("good options")
    }

    /// Starts an agent, as `main` does.
    pub(crate) fn start_agent(self: &Rc<Self>) {
        self.kill_agent();
        self.sim.trace("agent starts", 0, 0);
        let options = self.options();
        let policy = InForce::new(Some(self.flavour));
        policy.take(policy::read(&options));
        let files = "the simulation".into();
        let agent =
            Rc::new(Agent::new(options, self.flavour, policy, Identity, files, Lock::default()));
        if self.qemu.backend == Backend::Line {
            // A line says nothing of it: `agent.conf` does.
            agent.allow_devlxd(true);
        }
        let (task, world) = (agent.clone(), Rc::downgrade(self));
        agent.spawn(async move {
            pump::run(task.clone()).await;
            // It has said STOPPED.
            let Some(world) = world.upgrade() else { return };
            world.oracle.excuse();
            world.sim.kill(task.executor.process());
        });
        let task = agent.clone();
        agent.spawn(async move { match devlxd::server::run(task).await {} });
        let task = agent.clone();
        agent.spawn(async move {
            task.find_host(None);
            let broken = hostapi::server::listen(task, vec![Listener]).await;
            drop(broken);
        });
        *self.agent.borrow_mut() = Some(Running { agent, begun: self.sim.awake() });
    }

    /// Shows the oracle the agent's state.
    fn watch(&self) {
        let running = self.agent.borrow();
        let Some(Running { agent, .. }) = &*running else { return };
        if let Ok(status) = agent.status.try_borrow() {
            self.oracle.agent_is(status.state(), status.address().map(|address| address.port));
        }
    }

    pub(crate) fn kill_agent(&self) {
        let Some(Running { agent, .. }) = self.agent.take() else { return };
        self.sim.trace("agent is killed", 0, 0);
        self.oracle.excuse();
        self.sim.kill(agent.executor.process());
    }

    /// SIGTERM: it says STOPPED, and ends.
    pub(crate) fn stop_agent(&self) {
        let agent = self.agent.borrow().as_ref().map(|running| running.agent.clone());
        let Some(agent) = agent else { return };
        self.sim.trace("agent ends", 0, 0);
        agent.allow_devlxd(false);
        self.oracle.excuse();
        agent.status(|status| status.stop(now()));
        agent.operations.hang_up();
    }

    /// Programs in the guest, and somebody who looks whether anybody waits for too long.
    pub(crate) fn populate(self: &Rc<Self>, visitors: u64) {
        let process = self.sim.process(Zone::Guest);
        for _ in 0..visitors {
            self.sim.spawn(process, visitor(self.guest.clone()));
        }
        if self.flavour != Flavour::LxdOld {
            self.sim.spawn(process, application(self.guest.clone()));
        }
        let world = Rc::downgrade(self);
        self.sim.watch(move || world.upgrade().iter().for_each(|world| world.watch()));
        let world = self.clone();
        self.sim.spawn(self.sim.process(Zone::Host), async move {
            loop {
                sleep(&world.sim, Zone::Host, SECOND).await;
                world.oracle.look();
                world.listen();
            }
        });
    }

    /// Whether the agent says as often as it should that it is there.
    fn listen(&self) {
        let running = self.agent.borrow();
        let running = running.as_ref().filter(|_| self.qemu.is_there());
        let Some(Running { agent, begun }) = running else { return };
        let (written, there) = (self.qemu.written.get(), self.qemu.since.get().max(*begun));
        let state = agent.state();
        let limit = match state {
            State::Started if written < there && self.qemu.away.get() > LATE => FIRST_LATE,
            State::Started if written < there => FIRST,
            State::Started => STARTED,
            State::Connected if self.qemu.backend == Backend::Line => CONNECTED,
            State::Connected if written < there => REFRESH,
            State::Connected => SILENT,
            State::Connect | State::Stopped => return,
        };
        let since = written.max(there).max(self.oracle.since.get());
        let silence = self.sim.awake() - since;
        if silence > limit {
            self.sim.fail(format!("{} and silent for {} ms", state.name(), silence / MILLI));
        }
    }

    /// So many connect that there is no room for more, and say nothing.
    pub(crate) fn crowd(&self, length: Micros) {
        self.sim.trace("crowd", length, 0);
        for _ in 0..self.bounds.connections {
            let (sim, net, oracle) = (self.sim.clone(), self.net.clone(), self.oracle.clone());
            self.sim.spawn(self.sim.process(Zone::Guest), async move {
                let stream = net.connect(Place::Devlxd, Zone::Guest).await;
                // Another may be closed for it whose request is still on its way.
                oracle.excuse();
                sleep(&sim, Zone::Guest, length).await;
                drop(stream);
            });
        }
    }

    /// All that is broken is whole again, and a program asks something regularly.
    pub(crate) fn calm(self: &Rc<Self>) {
        self.sim.trace("calm", 0, 0);
        // A connection that broke just now has no answer.
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

    /// The agent has no descriptor left, or has some again. That says nothing of the host.
    pub(crate) fn starve(&self, lacks: bool) {
        self.sim.trace("descriptors", u64::from(lacks), 0);
        here().lacking.set(lacks);
        self.oracle.keeps_host.set(lacks && self.disagreement().is_none());
    }

    /// Whether agent and host agree on everything.
    pub(crate) fn disagreement(&self) -> Option<String> {
        let running = self.agent.borrow();
        let Some(Running { agent, .. }) = running.as_ref() else {
            return Some("there is no agent".into());
        };
        let (state, port) = (agent.state(), self.host.port.get());
        let address = agent.status.borrow().address();
        if state != State::Connected {
            return Some(format!("the host is there, the agent is {}", state.name()));
        }
        if address.is_none_or(|address| address.port != port) {
            return Some(format!("CONNECTED to {address:?}, the host is at port {port}"));
        }
        if self.qemu.backend != Backend::Line && !self.host.started.get() {
            return Some("CONNECTED, and the host takes it for stopped".into());
        }
        None
    }

    /// The end: who is right?
    pub(crate) fn judge(&self) -> Outcome {
        if let Some(why) = self.disagreement() {
            self.sim.fail(why);
        }
        self.oracle.host_keeps(self.host.keeps.get());
        let [full, resumed] = &self.host.handshakes;
        if self.host.nature.gives_tickets && full.get() >= FULL && resumed.get() == 0 {
            self.sim.fail(format!("{} tickets, and none is used", full.get()));
        }
        self.outcome()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.host.die();
        self.agent.take();
        self.sim.clear();
        Outcome {
            hash: self.sim.hash(),
            failure: self.sim.failure(),
            answers: self.oracle.answers.get(),
            connects: self.oracle.connects.get(),
            length: self.sim.now(Zone::Host),
        }
    }
}
