//! Rules that must hold in every scenario, as the host and guest programs observe them.

use std::collections::BTreeSet;

use crate::sim_prelude::*;

/// Maximum time to CONNECTED: a verification takes 3 s at most (decisions §1).
const PROOF: Micros = 3 * SECOND + 100 * MILLI;

/// Time from SIGTERM to the end: 3 s for the host to fetch exit codes, and 2 s for STOPPED.
pub(crate) const END: Micros = 5_200 * MILLI;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Word {
    #[default]
    Started,
    Ready,
}

impl Word {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Ready => "Ready",
        }
    }
}

#[derive(Default)]
pub(crate) struct Oracle {
    sim: Rc<Sim>,
    /// Whether the agent repeats Ready to a host that has forgotten it.
    pub(crate) says_ready_again: bool,
    /// The application's last report that got the answer 200.
    said: Cell<Word>,
    /// Later reports without an answer, which the host may have received.
    unsure: RefCell<BTreeSet<bool>>,
    /// The report that waits for its answer.
    asked: Cell<Option<Word>>,
    /// When a host last answered a verification, and its port.
    proof: Cell<Option<(Micros, u32)>>,
    state: Cell<Option<State>>,
    /// When that state was entered, monotonic.
    pub(crate) since: Cell<Micros>,
    once: RefCell<BTreeSet<(&'static str, u64)>>,
    waits: RefCell<BTreeMap<u64, (&'static str, Micros)>>,
    /// Number of events that excuse a missing answer: an agent that died, a clock that jumped.
    excuses: Cell<u64>,
    guests_excuses: Cell<u64>,
    /// Number of agents that were asked to end or to hand over, and the last time.
    ends: Cell<u64>,
    ended: Cell<Micros>,
    /// Deadline of the last agent that was asked to end, monotonic.
    ends_until: Cell<Micros>,
    /// The newest agent that has served a peer, and the number of agents.
    serving: Cell<u32>,
    agents: Cell<u32>,
    /// Number of answered requests, and of times that the agent became CONNECTED.
    pub(crate) answers: Cell<u64>,
    pub(crate) connects: Cell<u64>,
    /// Whether the agent has no reason to consider its host lost.
    pub(crate) keeps_host: Cell<bool>,
    /// Raised each time the agent becomes CONNECTED.
    pub(crate) found: Signal,
}

impl Oracle {
    pub(crate) fn new(sim: Rc<Sim>, says_ready_again: bool) -> Rc<Self> {
        Rc::new(Self { sim, says_ready_again, ..Self::default() })
    }

    pub(crate) fn app_asks(&self, word: Word) {
        self.asked.set(Some(word));
    }

    pub(crate) fn app_heard(&self, is_accepted: bool) {
        let Some(word) = self.asked.take() else { return };
        self.sim.trace("application said", u64::from(word == Word::Ready), u64::from(is_accepted));
        if is_accepted {
            self.said.set(word);
            self.unsure.borrow_mut().clear();
        } else {
            self.unsure.borrow_mut().insert(word == Word::Ready);
        }
    }

    /// Returns whether the application may be in this state.
    fn may_be(&self, word: Word) -> bool {
        self.said.get() == word || self.unsure.borrow().contains(&(word == Word::Ready))
    }

    /// Checks a report that the host receives, from the application or repeated by the agent.
    pub(crate) fn host_hears(&self, word: Word) {
        self.sim.trace("host hears", u64::from(word == Word::Ready), 0);
        if self.asked.get() != Some(word) && !self.may_be(word) {
            self.sim.fail(format!("{word:?} was not reported by the application"));
        }
        let is_unsure = self.unsure.borrow().contains(&(word == Word::Ready));
        if !self.says_ready_again && self.asked.get() != Some(word) && !is_unsure {
            self.sim.fail(format!("{word:?} is repeated"));
        }
    }

    /// Checks the state that the host has at the end.
    pub(crate) fn host_keeps(&self, word: Word) {
        if self.says_ready_again && self.asked.get().is_none() && !self.may_be(word) {
            let said = self.said.get();
            self.sim.fail(format!("the application reported {said:?}, the host has {word:?}"));
        }
    }

    /// Records that the host at that port has answered the agent's `GET /1.0`.
    pub(crate) fn host_answers_well(&self, port: u32) {
        self.proof.set(Some((self.sim.awake(), port)));
    }

    /// Checks a possible change of the agent's state and its address of the host.
    pub(crate) fn agent_is(&self, state: State, port: Option<u32>) {
        if self.state.replace(Some(state)) == Some(state) {
            return;
        }
        self.sim.trace(state.name(), 0, 0);
        if self.keeps_host.get() {
            self.sim.fail(format!("{}: the agent lost a reachable host", state.name()));
        }
        self.since.set(self.sim.awake());
        if state == State::Connected {
            self.connects.set(self.connects.get() + 1);
            self.found.raise();
            let now = self.sim.awake();
            let proves = |(when, of): (Micros, u32)| now - when <= PROOF && port == Some(of);
            if !self.proof.get().is_some_and(proves) {
                self.sim.fail(format!("CONNECTED, but no host has answered at {port:?}"));
            }
        }
    }

    /// Expects an answer, or an end, within this time.
    pub(crate) fn wait(self: &Rc<Self>, what: &'static str, limit: Micros) -> Wait {
        let (number, end) = (self.sim.number(), self.sim.awake() + limit);
        self.waits.borrow_mut().insert(number, (what, end));
        Wait { oracle: self.clone(), number }
    }

    /// Checks for expired waits. Call it often.
    pub(crate) fn look(&self) {
        let now = self.sim.awake();
        for (what, end) in self.waits.borrow().values() {
            if now > *end {
                self.sim.fail(format!("{what} hangs past its limit"));
            }
        }
    }

    /// Checks that something happens only once.
    pub(crate) fn once(&self, what: &'static str, number: u64) {
        if !self.once.borrow_mut().insert((what, number)) {
            self.sim.fail(format!("{what} {number} came twice"));
        }
    }

    pub(crate) fn at_most(&self, what: &str, count: usize, most: usize) {
        if count > most {
            self.sim.fail(format!("{what}: {count} of {most}"));
        }
    }

    /// Excuses missing answers on current connections.
    pub(crate) fn excuse(&self) {
        self.excuses.set(self.excuses.get() + 1);
    }

    pub(crate) fn excuse_guests(&self) {
        self.guests_excuses.set(self.guests_excuses.get() + 1);
    }

    /// Records that an agent was asked to end or hand over. It must finish what the host asked for.
    pub(crate) fn agent_ends(&self) {
        self.excuse_guests();
        self.ends.set(self.ends.get() + 1);
        self.ended.set(self.sim.awake());
        self.ends_until.set(self.sim.awake() + END);
    }

    pub(crate) fn ended(&self) -> Micros {
        self.ended.get()
    }

    pub(crate) fn guests_excuses(&self) -> u64 {
        self.excuses.get() + self.guests_excuses.get()
    }

    /// Returns the rank of the next agent that completes its start. An older agent has served
    /// guests until then, and ends the requests that it has not answered.
    pub(crate) fn next_to_serve(&self) -> u32 {
        self.excuse_guests();
        self.agents.set(self.agents.get() + 1);
        self.agents.get()
    }

    /// Checks that no older agent serves after a newer one.
    pub(crate) fn serves(&self, agent: u32, what: &str) {
        if agent < self.serving.replace(self.serving.get().max(agent)) {
            self.sim.fail(format!("two agents serve {what}"));
        }
    }
}

/// The number of excuses at the time of a request, and that time, monotonic.
pub(crate) struct Before {
    oracle: Rc<Oracle>,
    pub(crate) asked: Micros,
    excuses: u64,
    guests_excuses: u64,
    ends: u64,
    pub(crate) was_ending: bool,
}

impl Before {
    pub(crate) fn now(oracle: &Rc<Oracle>) -> Self {
        Self {
            oracle: oracle.clone(),
            asked: oracle.sim.awake(),
            excuses: oracle.excuses.get(),
            guests_excuses: oracle.guests_excuses.get(),
            ends: oracle.ends.get(),
            was_ending: oracle.sim.awake() < oracle.ends_until.get(),
        }
    }

    /// Returns whether the agent or its clock may have been lost since.
    pub(crate) fn is_excused(&self) -> bool {
        self.excuses != self.oracle.excuses.get()
    }

    /// Returns whether connections may have been lost since.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_excused() || self.guests_excuses != self.oracle.guests_excuses.get()
    }

    /// Returns whether an agent may have been asked to end: it accepts calls but starts nothing.
    pub(crate) fn has_ended(&self) -> bool {
        self.was_ending || self.ends != self.oracle.ends.get()
    }
}

pub(crate) struct Wait {
    oracle: Rc<Oracle>,
    number: u64,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.oracle.waits.borrow_mut().remove(&self.number);
    }
}
