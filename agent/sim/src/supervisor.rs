//! Starts, stops and replaces the agents of a scenario, and checks their deadlines.

use crate::host::port::Backend;
use crate::life;
use crate::machine::Listener;
use crate::options::{self, Options};
use crate::oracle::END;
use crate::scenario::Scenario;
use crate::sim_prelude::*;
use crate::sys::{SignalSource, Signalled};

/// The first line is due when the port is found, at most 200 ms after an older one. The agent looks
/// for the port every 100 ms, and every second once it has been absent for 10 s.
const FIRST: Micros = 500 * MILLI;
const FIRST_LATE: Micros = 1_400 * MILLI;
const LATE: Micros = 9 * SECOND;
/// If the agent becomes CONNECTED meanwhile, the first line is the silent one 1.5 s later.
const REFRESH: Micros = 2 * SECOND;
/// Interval of STARTED. Between STOPPED and STARTED are 1.5 s (decisions §1).
const STARTED: Micros = 2 * SECOND;
/// A silent STARTED fills the ring every 5 s; another port gets a line every 30 s (decisions §1).
const SILENT: Micros = 5_500 * MILLI;
const CONNECTED: Micros = 30_500 * MILLI;
/// Interval without vsock: every 5 s, with a report that takes up to 2.5 s (P§2.2).
const ALONE: Micros = 8 * SECOND;
/// With everything that it needs, an agent starts at its next check, at most a second later.
/// A running agent hands over to it within 5 s.
const START: Micros = 1_400 * MILLI;
const ROOM: Micros = 5 * SECOND;
/// Pause before a service manager restarts a failed agent.
const RESTART: Micros = SECOND;

const ALL: &[u8] =
    b"features: {exec: true, files: true, guestapi: true, metrics: true, mounts: true, \
                     network: true, port-forward: true, state: true, templates: true}\n";
const NO_EXEC: &[u8] = b"features: {files: true, guestapi: true, metrics: true, mounts: true, \
                         network: true, port-forward: true, state: true, templates: true}\n";

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
    /// When the agent was asked to end.
    pub(crate) stopping: Cell<Option<Micros>>,
}

/// A serving agent, and when it began to serve: true time without suspends.
pub(crate) struct Running {
    pub(crate) process: Rc<AgentProcess>,
    pub(crate) agent: Rc<Agent>,
    pub(crate) begun: Micros,
    /// Whether the agent was started without vsock.
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

impl Scenario {
    fn options(&self, stage: Stage) -> Options {
        let mut words =
            vec!["mote-agent", "--root", "/simulated", "--flavour", self.flavour.name()];
        if !self.denied.is_empty() {
            words.extend(["--deny", self.denied]);
        }
        if !self.oracle.says_ready_again {
            words.push("--no-replay-ready");
        }
        words.extend(match stage {
            Stage::Root => None,
            Stage::Early => Some(options::INITRAMFS),
            Stage::Left => Some(options::LEFT),
        });
        options::parse(words.into_iter().map(Into::into)).expect("good options")
    }

    pub(crate) fn restarts(self: &Rc<Self>) {
        let scenario = Rc::downgrade(self);
        let reexec = move |old: &Rc<AgentProcess>, stage| {
            let Some(scenario) = scenario.upgrade() else { return };
            // The old agent's guest connections are closed; the host's commands continue.
            scenario.oracle.excuse_guests();
            let (sim, kernel) = (&scenario.sim, &here().kernel);
            let listener = old.listens.borrow().listener().filter(|_| old.hands_on.get());
            kernel.end(sim, old);
            scenario.launch(stage, listener);
        };
        *here().kernel.reexec.borrow_mut() = Some(Rc::new(reexec));
    }

    /// Kills the last agent and starts the next one, like a service manager.
    pub(crate) fn start_agent(self: &Rc<Self>, stage: Stage) {
        self.kill_agent();
        self.launch(stage, None);
    }

    /// Starts an agent in the same way, `length` after the current one has ended or was replaced.
    pub(crate) fn start_later(self: &Rc<Self>, stage: Stage, length: Micros) {
        let (scenario, old) = (self.clone(), self.agents.number());
        self.sim.spawn(self.sim.process(Zone::Guest), async move {
            while old.is_some() && scenario.agents.number() == old {
                sleep(&scenario.sim, Zone::Guest, 10 * MILLI).await;
            }
            sleep(&scenario.sim, Zone::Guest, length).await;
            scenario.start_agent(stage);
        });
    }

    pub(crate) fn start_second(self: &Rc<Self>) {
        self.oracle.agent_ends();
        self.launch(Stage::Root, None);
    }

    fn launch(self: &Rc<Self>, stage: Stage, listener: Option<Listener>) {
        let process = self.sim.process(Zone::Guest);
        let agent = here().kernel.start(&self.sim, process, stage, listener);
        self.agents.last.replace(Some(agent.clone()));
        self.agents.starting.set(Some(self.sim.awake()));
        let scenario = self.clone();
        self.sim.spawn(process, async move {
            // Wait: nothing else happens during exec(2).
            let is_free = || !scenario.sim.is_blocked() && !here().kernel.is_reexecuting(process);
            scenario.sim.unblocked.until(|| is_free().then_some(())).await;
            let mut begun = None;
            let go = |shared, served| {
                begun = Some((shared, served));
                Ok(())
            };
            let signals = SignalSource(agent.clone());
            let mut result = life::run(scenario.options(stage), signals, go);
            scenario.sim.unblocked.raise();
            if let Some((shared, served)) = begun.filter(|_| !agent.is_dead.get()) {
                scenario.serves(&agent, shared);
                result = served.await;
            }
            scenario.over(&agent, result);
        });
    }

    fn serves(&self, process: &Rc<AgentProcess>, agent: Rc<Agent>) {
        self.sim.trace("agent serves", 0, 0);
        process.has_begun.set(true);
        process.rank.set(self.oracle.next_to_serve());
        let begun = self.sim.awake();
        let is_alone = here().kernel.lacks_vsock.get();
        let running = Running { process: process.clone(), agent, begun, is_alone };
        self.agents.running.replace(Some(running));
        self.agents.starting.set(None);
        self.agents.stopping.set(None);
    }

    /// Handles the end of the agent's program.
    fn over(self: &Rc<Self>, agent: &Rc<AgentProcess>, result: Result<(), String>) {
        let (sim, kernel) = (&self.sim, &here().kernel);
        let is_last = self.agents.last.borrow().as_ref().is_some_and(|it| Rc::ptr_eq(it, agent));
        let is_running = self.agents.process().is_some_and(|it| Rc::ptr_eq(&it, agent));
        let was_killed = agent.is_dead.get();
        kernel.end(sim, agent);
        if was_killed {
            return;
        }
        sim.trace("agent is over", u64::from(result.is_ok()), 0);
        if is_running {
            // The host must be notified, unless the port is absent or nothing reads it.
            match self.agents.stopping.take() {
                // An agent that handed over finishes what it has started.
                None if result.is_err() => self.oracle.excuse(),
                // Another agent takes over at this moment.
                Some(_) if !kernel.beginning().is_empty() => {}
                Some(since) if !self.qemu.has_received(b"STOPPED\n", since) => {
                    sim.fail("an agent has ended without reporting STOPPED".into());
                }
                None | Some(_) => {}
            }
            self.oracle.excuse_guests();
            self.agents.running.take();
            self.agents.freed.set(sim.awake());
        }
        if is_last {
            self.agents.starting.set(None);
        }
        let Err(why) = result else { return };
        sim.say(format_args!("the agent fails: {why}"));
        if self.agents.process().is_some() {
            return;
        }
        let scenario = self.clone();
        sim.spawn(sim.process(Zone::Guest), async move {
            sleep(&scenario.sim, Zone::Guest, RESTART).await;
            let is_alone =
                scenario.agents.process().is_none() && scenario.agents.starting.get().is_none();
            if is_alone {
                scenario.start_agent(Stage::Root);
            }
        });
    }

    pub(crate) fn kill_agent(&self) {
        let running = self.agents.running.take().map(|running| running.process);
        self.agents.last.take();
        self.agents.starting.set(None);
        self.agents.stopping.set(None);
        for agent in running.into_iter().chain(here().kernel.beginning()) {
            self.sim.trace("agent is killed", 0, 0);
            self.oracle.excuse();
            here().kernel.end(&self.sim, &agent);
        }
    }

    /// Sends SIGTERM: the agent reports STOPPED and ends.
    pub(crate) fn stop_agent(&self) {
        let Some(agent) = self.agents.process() else { return };
        self.sim.trace("agent ends", 0, 0);
        self.oracle.agent_ends();
        self.agents.stopping.set(Some(self.sim.awake()));
        agent.signal(Signalled::End);
    }

    /// Sends SIGHUP: the agent reads its policy again and re-execs once no host request is open.
    pub(crate) fn renew_agent(&self) {
        let (running, last) = (self.agents.process(), self.agents.last.borrow().clone());
        self.sim.trace("agent is to re-exec", 0, 0);
        // The last agent may still be taking over from the running one.
        let other = last.filter(|last| !running.iter().any(|it| Rc::ptr_eq(it, last)));
        running.iter().chain(&other).for_each(|agent| agent.signal(Signalled::Reexec));
    }

    /// Changes the guest's policy and signals the agent.
    pub(crate) fn change_policy(&self, allows_exec: bool) {
        let text = if allows_exec { ALL } else { NO_EXEC };
        let path = "/simulated/etc/mote-agent.yml".into();
        here().files.borrow_mut().insert(path, text.into());
        self.sim.trace("policy", u64::from(allows_exec), 0);
        self.host.may_exec.set(allows_exec && self.denied.is_empty());
        self.host.may_since.set(self.sim.awake());
        self.renew_agent();
    }

    /// Sets whether something that a start needs is missing.
    pub(crate) fn lack(&self, lacks_files: bool, lacks_vsock: bool) {
        let kernel = &here().kernel;
        kernel.plug(&kernel.lacks_files, lacks_files);
        kernel.plug(&kernel.lacks_vsock, lacks_vsock);
        self.agents.whole.set(self.sim.awake());
    }

    pub(crate) fn look_at_agents(&self) {
        let (now, kernel) = (self.sim.awake(), &here().kernel);
        let lacks = kernel.lacks_files.get() || kernel.lacks_vsock.get();
        let is_whole = !lacks && kernel.other.borrow().is_none();
        if let Some(since) = self.agents.starting.get().filter(|_| is_whole) {
            let limit = if self.agents.process().is_some() { ROOM + START } else { START };
            if now - since.max(self.agents.whole.get()).max(self.agents.freed.get()) > limit {
                self.sim.fail("everything is available, but no agent starts".into());
            }
        }
        if self.agents.stopping.get().is_some_and(|since| now - since > END) {
            self.sim.fail("the agent does not exit after SIGTERM".into());
        }
        self.listen();
    }

    /// Checks that the agent reports its state often enough.
    fn listen(&self) {
        let running = self.agents.running.borrow();
        let running = running.as_ref().filter(|_| self.qemu.is_there());
        let Some(Running { agent, begun, is_alone, .. }) = running else { return };
        let (written, there) = (self.qemu.written.get(), self.qemu.since.get().max(*begun));
        let state = agent.state();
        let limit = match state {
            State::Started if *is_alone => ALONE,
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
}
