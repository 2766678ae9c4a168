//! What must hold whatever happens, seen from outside of the agent: by the host, by the programs in the guest.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use mote_core::status::State;

use crate::machine::executor::{MILLI, Micros, SECOND, Sim};
use crate::machine::wait::Signal;

/// A verification takes 3 s at most (decisions §1), so CONNECTED follows an answer of the host's within that.
const PROOF: Micros = 3 * SECOND + 100 * MILLI;

/// After SIGTERM: 3 s for the host to take the ends of its commands, and 2 s for STOPPED.
pub(crate) const END: Micros = 5_200 * MILLI;

/// What an application says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
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

/// Watches one history.
pub(crate) struct Oracle {
    sim: Rc<Sim>,
    /// Whether the agent says Ready again to a host that has forgotten it.
    pub(crate) says_ready_again: bool,
    /// The last word of the application that was answered with 200.
    said: Cell<Word>,
    /// Its words since then without an answer: the host may have heard them or not.
    unsure: RefCell<BTreeSet<bool>>,
    /// The word that waits for its answer.
    asked: Cell<Option<Word>>,
    /// When a host last answered a verification well, and its port.
    proof: Cell<Option<(Micros, u32)>>,
    state: Cell<State>,
    /// When it was entered, in time awake.
    pub(crate) since: Cell<Micros>,
    once: RefCell<BTreeSet<(&'static str, u64)>>,
    waits: RefCell<BTreeMap<u64, (&'static str, Micros)>>,
    /// Counts what excuses a request without its answer: an agent that died, a clock that jumped.
    excuses: Cell<u64>,
    /// The same of guests alone.
    guests_excuses: Cell<u64>,
    /// Agents that were told to end, and second ones that were started, and the last time.
    ends: Cell<u64>,
    ended: Cell<Micros>,
    /// Until when the last of them may go on, in time awake.
    ends_until: Cell<Micros>,
    /// The newest agent that has served anybody, and how many there are.
    serving: Cell<u32>,
    agents: Cell<u32>,
    /// Requests that were answered, and times that the host was found.
    pub(crate) answers: Cell<u64>,
    pub(crate) connects: Cell<u64>,
    /// Whether nothing has happened for which the agent could take its host for lost.
    pub(crate) keeps_host: Cell<bool>,
    /// Raised each time that the host is found.
    pub(crate) found: Signal,
}

impl Oracle {
    pub(crate) fn new(sim: Rc<Sim>, says_ready_again: bool) -> Rc<Self> {
        Rc::new(Self {
            sim,
            says_ready_again,
            said: Cell::new(Word::Started),
            unsure: RefCell::default(),
            asked: Cell::default(),
            proof: Cell::default(),
            state: Cell::new(State::Started),
            since: Cell::default(),
            once: RefCell::default(),
            waits: RefCell::default(),
            excuses: Cell::default(),
            guests_excuses: Cell::default(),
            ends: Cell::default(),
            ended: Cell::default(),
            ends_until: Cell::default(),
            serving: Cell::default(),
            agents: Cell::default(),
            answers: Cell::default(),
            connects: Cell::default(),
            keeps_host: Cell::default(),
            found: Signal::default(),
        })
    }

    /// The application is about to say that.
    pub(crate) fn app_asks(&self, word: Word) {
        self.asked.set(Some(word));
    }

    /// It was answered, or not.
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

    /// Whether the application may mean that.
    fn may_be(&self, word: Word) -> bool {
        self.said.get() == word || self.unsure.borrow().contains(&(word == Word::Ready))
    }

    /// The host hears a word, from the application or said again by the agent.
    pub(crate) fn host_hears(&self, word: Word) {
        self.sim.trace("host hears", u64::from(word == Word::Ready), 0);
        if self.asked.get() != Some(word) && !self.may_be(word) {
            self.sim.fail(format!("{word:?} is invented: the application said otherwise"));
        }
        let is_unsure = self.unsure.borrow().contains(&(word == Word::Ready));
        if !self.says_ready_again && self.asked.get() != Some(word) && !is_unsure {
            self.sim.fail(format!("{word:?} is said again"));
        }
    }

    /// What the host keeps in the end.
    pub(crate) fn host_keeps(&self, word: Word) {
        if self.says_ready_again && self.asked.get().is_none() && !self.may_be(word) {
            let said = self.said.get();
            self.sim.fail(format!("the application said {said:?}, the host keeps {word:?}"));
        }
    }

    /// The host at that port has answered `GET /1.0` of the agent.
    pub(crate) fn host_answers_well(&self, port: u32) {
        self.proof.set(Some((self.sim.awake(), port)));
    }

    /// The agent's state and the host's port as the agent knows it, whenever they may have changed.
    pub(crate) fn agent_is(&self, state: State, port: Option<u32>) {
        if self.state.replace(state) == state {
            return;
        }
        self.sim.trace(state.name(), 0, 0);
        if self.keeps_host.get() {
            self.sim.fail(format!("{}: a host that is there is lost", state.name()));
        }
        self.since.set(self.sim.awake());
        if state == State::Connected {
            self.connects.set(self.connects.get() + 1);
            self.found.raise();
            let now = self.sim.awake();
            let proves = |(when, of): (Micros, u32)| now - when <= PROOF && port == Some(of);
            if !self.proof.get().is_some_and(proves) {
                self.sim.fail(format!("CONNECTED is invented: no host has answered at {port:?}"));
            }
        }
    }

    /// Somebody waits for an answer and has a right to it, or to an end, within that time.
    pub(crate) fn wait(self: &Rc<Self>, what: &'static str, limit: Micros) -> Wait {
        let (number, end) = (self.sim.number(), self.sim.awake() + limit);
        self.waits.borrow_mut().insert(number, (what, end));
        Wait { oracle: self.clone(), number }
    }

    /// Looks for those who wait for too long; to be called often.
    pub(crate) fn look(&self) {
        let now = self.sim.awake();
        for (what, end) in self.waits.borrow().values() {
            if now > *end {
                self.sim.fail(format!("{what} hangs past its limit"));
            }
        }
    }

    /// Something that may happen once only.
    pub(crate) fn once(&self, what: &'static str, number: u64) {
        if !self.once.borrow_mut().insert((what, number)) {
            self.sim.fail(format!("{what} {number} came twice"));
        }
    }

    /// Something that may be at most so large.
    pub(crate) fn at_most(&self, what: &str, count: usize, most: usize) {
        if count > most {
            self.sim.fail(format!("{what}: {count} of {most}"));
        }
    }

    /// Who is connected now may be left without an answer.
    pub(crate) fn excuse(&self) {
        self.excuses.set(self.excuses.get() + 1);
    }

    /// The same, if it is a guest.
    pub(crate) fn excuse_guests(&self) {
        self.guests_excuses.set(self.guests_excuses.get() + 1);
    }

    /// An agent is told to end, or to make room: what it has begun for the host it ends well.
    pub(crate) fn agent_ends(&self) {
        self.excuse_guests();
        self.ends.set(self.ends.get() + 1);
        self.ended.set(self.sim.awake());
        self.ends_until.set(self.sim.awake() + END);
    }

    /// When an agent was last told to end.
    pub(crate) fn ended(&self) -> Micros {
        self.ended.get()
    }

    /// Both counts, for a guest.
    pub(crate) fn guests_excuses(&self) -> u64 {
        self.excuses.get() + self.guests_excuses.get()
    }

    /// The number of the next agent that is past its start.
    pub(crate) fn next_to_serve(&self) -> u32 {
        self.agents.set(self.agents.get() + 1);
        self.agents.get()
    }

    /// An agent serves somebody: none does after a newer one.
    pub(crate) fn serves(&self, agent: u32, what: &str) {
        if agent < self.serving.replace(self.serving.get().max(agent)) {
            self.sim.fail(format!("two agents serve {what}"));
        }
    }
}

/// What had been an excuse when something was asked, and when that was, in time awake.
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

    /// Whether the agent, or its clock, may have been lost since.
    pub(crate) fn is_excused(&self) -> bool {
        self.excuses != self.oracle.excuses.get()
    }

    /// Whether connections may have been.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_excused() || self.guests_excuses != self.oracle.guests_excuses.get()
    }

    /// Whether an agent may have been told to end, or to make room: it still takes the host's calls, but begins nothing.
    pub(crate) fn has_ended(&self) -> bool {
        self.was_ending || self.ends != self.oracle.ends.get()
    }
}

/// A wait; over when dropped.
pub(crate) struct Wait {
    oracle: Rc<Oracle>,
    number: u64,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.oracle.waits.borrow_mut().remove(&self.number);
    }
}
