//! What the host knows of one agent, from the lines it wrote and the calls it made or answered.
//!
//! Two views are kept apart. `started` is what a real host keeps, and what decides about the PUT
//! (P§2.3). The word is for people: the last thing the agent is known to have been.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use mote_client::agent::trouble::Trouble;
use mote_client::common::clock::{millis, rfc3339};

/// Lines that are remembered.
const LINES: usize = 16;
/// Of a line that is remembered, bytes.
const LENGTH: usize = 256;
/// Of an error that is remembered, bytes.
const LONG: usize = 1024;

/// From STOPPED to STARTED of an agent that only wants to be called again: it leaves the host the time to
/// read both (1.5 s), and QEMU may hold the second back for one more.
const TURN: Duration = Duration::from_secs(5);

/// What an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It has been in touch both ways.
    Connected,
    /// It has announced itself.
    Started,
    /// It said goodbye, or its VM is off.
    Stopped,
    /// Nothing was heard.
    Unknown,
}

impl Word {
    fn name(self) -> &'static str {
        match self {
            Self::Connected => "CONNECTED",
            Self::Started => "STARTED",
            Self::Stopped => "STOPPED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// What a decisive line changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The first STARTED.
    Began,
    /// STOPPED after STARTED.
    Ended,
    /// Nothing.
    Same,
}

/// The last PUT.
#[derive(Clone, Debug)]
pub struct Put {
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What that means, if it is known.
    pub trouble: Option<Trouble>,
    /// When it was over.
    pub at: SystemTime,
    /// How long it took.
    pub took: Duration,
}

/// The last error between host and guest.
#[derive(Clone, Debug)]
pub struct LastError {
    at: SystemTime,
    /// For people.
    pub text: String,
    /// What that means, if it is known.
    pub trouble: Option<Trouble>,
}

/// What is known.
#[derive(Debug)]
pub struct AgentState {
    word: Word,
    since: (SystemTime, Instant),
    /// Since when it had announced itself before it said STOPPED.
    announced: Option<(SystemTime, Instant)>,
    started: bool,
    lines: VecDeque<(SystemTime, String)>,
    last_put: Option<Put>,
    last_error: Option<LastError>,
    /// What an agent without vsock tells through the port (P§2.4).
    serial_state: Option<Value>,
    /// Connections of the guest's.
    pub connections: u64,
    /// Of these connections, those that resumed a TLS session.
    pub resumed: u64,
    /// The last request.
    pub last_request: String,
}

impl Default for AgentState {
    /// Nothing yet.
    fn default() -> Self {
        Self {
            word: Word::Unknown,
            since: (SystemTime::now(), Instant::now()),
            announced: None,
            started: false,
            lines: VecDeque::new(),
            last_put: None,
            last_error: None,
            serial_state: None,
            connections: 0,
            resumed: 0,
            last_request: String::new(),
        }
    }
}

impl AgentState {
    /// What it is.
    pub fn word(&self) -> Word {
        self.word
    }

    /// What it wrote last.
    pub fn last_line(&self) -> &str {
        self.lines.back().map_or("", |(_, line)| line.as_str())
    }

    /// The last PUT.
    pub fn last_put(&self) -> Option<&Put> {
        self.last_put.as_ref()
    }

    /// The last error.
    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }

    /// Whether a real host would call it ("agent started").
    pub fn is_started(&self) -> bool {
        self.started
    }

    fn enter(&mut self, word: Word) {
        if self.word == word {
            return;
        }
        let turns = word == Word::Started && self.since.1.elapsed() < TURN;
        let before = self.announced.take().filter(|_| turns);
        if (self.word, word) == (Word::Started, Word::Stopped) {
            self.announced = Some(self.since);
        }
        self.word = word;
        self.since = before.unwrap_or_else(|| (SystemTime::now(), Instant::now()));
    }

    /// Takes note of a line, decisive or not.
    pub fn note(&mut self, line: &str) {
        let line: String = line.chars().take(LENGTH).collect();
        match line.as_str() {
            // A heartbeat of a connected agent is no news.
            "STARTED" if self.word != Word::Connected || !self.started => self.enter(Word::Started),
            "CONNECTED" => self.enter(Word::Connected),
            "STOPPED" => self.enter(Word::Stopped),
            _ => {}
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back((SystemTime::now(), line));
    }

    /// Takes an instance's state from the last of the lines that were read at once, as Incus does from
    /// 7.0.1 on (P§2.3); a reading without one forgets it.
    pub fn note_state(&mut self, lines: &[&str]) {
        let Some((last, [_, ..])) = lines.split_last() else { return };
        let state = serde_json::from_str(last).ok();
        self.serial_state = state.filter(|state: &Value| state["pid"] == 1);
    }

    /// What came that way.
    pub fn serial_state(&self) -> Option<&Value> {
        self.serial_state.as_ref()
    }

    /// Follows a line, as a real host does (P§2.3).
    pub fn decide(&mut self, line: &str) -> Edge {
        match (line, self.started) {
            ("STARTED", false) => {
                self.started = true;
                Edge::Began
            }
            ("STOPPED", true) => {
                self.started = false;
                Edge::Ended
            }
            _ => Edge::Same,
        }
    }

    /// A PUT is over. One that succeeded means that the agent called back.
    pub fn put(&mut self, mut put: Put) {
        match &mut put.error {
            None => self.enter(Word::Connected),
            Some(error) => {
                error.truncate(error.floor_char_boundary(LONG));
                self.failed(&format!("PUT /1.0: {error}"), put.trouble);
            }
        }
        self.last_put = Some(put);
    }

    /// The host has answered a call of the agent's, so the agent knows the way: also if it was too slow to say so when it
    /// was told, on which no real host looks again. Before it was told nothing follows: it may still be on its way.
    pub fn called(&mut self) {
        if self.word == Word::Started
            && self.last_put.as_ref().is_some_and(|put| put.error.is_some())
        {
            self.enter(Word::Connected);
        }
    }

    /// Something between host and guest went wrong.
    pub fn failed(&mut self, error: &str, trouble: Option<Trouble>) {
        let text = error.chars().take(LONG).collect();
        self.last_error = Some(LastError { at: SystemTime::now(), text, trouble });
    }

    /// The VM is on, and its agent not heard of yet: what an earlier one said counts no more.
    pub fn power_on(&mut self) {
        if self.word == Word::Stopped {
            self.enter(Word::Unknown);
            self.last_put = None;
            self.last_error = None;
        }
    }

    /// The VM is off.
    pub fn power_off(&mut self) {
        self.started = false;
        self.enter(Word::Stopped);
    }

    /// The line to the guest is cut; a goodbye stays one.
    pub fn cut(&mut self) {
        self.started = false;
        if self.word != Word::Stopped {
            self.enter(Word::Unknown);
        }
    }

    /// For people and tests.
    pub fn to_json(&self) -> Value {
        let line = |(at, line): &(SystemTime, String)| json!({"at": rfc3339(*at), "line": line});
        let put = self.last_put.as_ref().map(|put| {
            json!({"ok": put.error.is_none(), "error": put.error,
                "cause": put.trouble.map(Trouble::name), "at": rfc3339(put.at),
                "ms": millis(put.took)})
        });
        json!({
            "state": self.word.name(),
            "since": rfc3339(self.since.0),
            "since_ms": millis(self.since.1.elapsed()),
            "started": self.started,
            "last_line": self.last_line(),
            "lines": self.lines.iter().map(line).collect::<Vec<_>>(),
            "last_put": put,
            "last_error": self.last_error.as_ref().map(|error| {
                json!({"at": rfc3339(error.at), "text": error.text,
                    "cause": error.trouble.map(Trouble::name)})
            }),
            "serial_state": self.serial_state,
            "connections": self.connections,
            "resumed": self.resumed,
            "last_request": self.last_request,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_started_is_an_edge_until_stopped() {
        let mut agent = AgentState::default();
        let edges: Vec<Edge> = ["STARTED", "STARTED", "CONNECTED", "x", "STOPPED", "STOPPED"]
            .iter()
            .map(|line| agent.decide(line))
            .collect();
        let (same, ended) = (Edge::Same, Edge::Ended);
        assert_eq!(edges, [Edge::Began, same, same, same, ended, same]);
        assert_eq!(agent.decide("STARTED"), Edge::Began);
    }

    #[test]
    fn heartbeats_of_a_connected_agent_leave_it_connected() {
        let mut agent = AgentState::default();
        for line in ["STARTED", "CONNECTED", "STARTED"] {
            agent.note(line);
            agent.decide(line);
        }
        assert_eq!(agent.word, Word::Connected);
        agent.note("STOPPED");
        agent.decide("STOPPED");
        agent.cut();
        assert_eq!(agent.word, Word::Stopped);
        agent.note("STARTED");
        assert_eq!(agent.word, Word::Started);
    }

    #[test]
    fn who_says_stopped_and_started_to_be_called_again_is_started_since_the_first_time() {
        let mut agent = AgentState::default();
        let since = |agent: &AgentState| agent.since.1;
        agent.note("STARTED");
        let first = since(&agent);
        for _ in 0..2 {
            agent.note("STOPPED");
            assert_ne!(since(&agent), first);
            agent.note("STARTED");
            assert_eq!(since(&agent), first);
        }
        // One that was CONNECTED is another when it is back, and so is one that takes its time.
        agent.note("CONNECTED");
        agent.note("STOPPED");
        agent.note("STARTED");
        let second = since(&agent);
        assert_ne!(second, first);
        agent.note("STOPPED");
        agent.since.1 -= TURN;
        agent.note("STARTED");
        assert_ne!(since(&agent), second);
    }

    #[test]
    fn only_a_put_that_worked_connects() {
        let mut agent = AgentState::default();
        let put = |error: Option<&str>| Put {
            error: error.map(str::to_owned),
            trouble: None,
            at: SystemTime::now(),
            took: Duration::ZERO,
        };
        agent.put(put(Some("no")));
        assert_eq!(
            (agent.word, &agent.to_json()["last_put"]["ok"]),
            (Word::Unknown, &json!(false))
        );
        agent.put(put(None));
        assert_eq!(
            (agent.word, &agent.to_json()["last_put"]["ok"]),
            (Word::Connected, &json!(true))
        );
    }

    #[test]
    fn one_that_was_slow_to_answer_and_then_calls_is_connected() {
        let mut agent = AgentState::default();
        // A call without a word: its port is what is wrong.
        agent.called();
        assert_eq!(agent.word, Word::Unknown);
        agent.note("STARTED");
        agent.called();
        assert_eq!(agent.word, Word::Started);
        agent.put(Put {
            error: Some("the peer took too long".into()),
            trouble: Some(Trouble::Slow),
            at: SystemTime::now(),
            took: Duration::from_secs(3),
        });
        assert_eq!(agent.word, Word::Started);
        agent.called();
        assert_eq!(agent.word, Word::Connected);
        agent.note("STOPPED");
        agent.called();
        assert_eq!(agent.word, Word::Stopped);
    }

    #[test]
    fn a_state_is_taken_from_the_last_of_several_lines() {
        let mut agent = AgentState::default();
        let state = |agent: &AgentState| agent.to_json()["serial_state"]["processes"].clone();
        agent.note_state(&["STARTED", r#"{"pid":1,"processes":7}"#]);
        assert_eq!(state(&agent), 7);
        agent.note_state(&[]);
        assert_eq!(state(&agent), 7);
        agent.note_state(&["STARTED", r#"{"pid":2,"processes":7}"#]);
        assert_eq!(state(&agent), Value::Null);
    }

    #[test]
    fn memory_of_lines_is_bounded() {
        let mut agent = AgentState::default();
        for number in 0..100 {
            agent.note(&format!("{number}{}", "x".repeat(1000)));
        }
        let shown = agent.to_json();
        assert_eq!(shown["lines"].as_array().unwrap().len(), LINES);
        assert!(shown["last_line"].as_str().unwrap().len() <= LENGTH);
    }
}
