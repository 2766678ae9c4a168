//! The host's knowledge of one agent, from the lines that it wrote and the calls between them.
//!
//! There are two views. `started` is what a real host stores; it decides whether to send the PUT
//! (P§2.3). `word` is what users see: the last known state of the agent.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};

use mote_client::CallFailure;
use mote_client::common::clock::{millis, rfc3339};
use mote_client::common::printable::word;

/// Number of lines that are kept.
const LINES: usize = 16;
/// Maximum length of a line that is kept, in bytes.
const LENGTH: usize = 256;
/// Maximum length of an error that is kept, in bytes.
const LONG: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Word {
    /// Calls have worked in both directions.
    Connected,
    Started,
    /// It has reported its end, or its VM is off.
    Stopped,
    /// It has not reported itself.
    #[default]
    Unknown,
}

/// The effect of a decisive line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The first STARTED.
    Began,
    /// STOPPED after STARTED.
    Ended,
    Same,
}

#[derive(Clone, Debug)]
pub struct Put {
    pub error: Option<String>,
    /// The cause of the error, if known.
    pub failure: Option<CallFailure>,
    pub at: SystemTime,
    pub took: Duration,
}

/// The last error between the host and the guest.
#[derive(Clone, Debug)]
pub struct LastError {
    at: SystemTime,
    pub text: String,
    pub failure: Option<CallFailure>,
}

#[derive(Debug, Default)]
pub struct AgentState {
    pub word: Word,
    since: Since,
    /// Whether a real host would call it ("agent started").
    pub started: bool,
    lines: VecDeque<(SystemTime, String)>,
    pub last_put: Option<Put>,
    pub last_error: Option<LastError>,
    /// The state that an agent without vsock reports through the port (P§2.4).
    pub serial_state: Option<Value>,
    /// Number of the guest's connections.
    pub connections: u64,
    /// Number of those that resumed a TLS session.
    pub resumed: u64,
    pub last_request: String,
}

#[derive(Debug)]
struct Since(SystemTime, Instant);

impl Default for Since {
    fn default() -> Self {
        Self(SystemTime::now(), Instant::now())
    }
}

impl AgentState {
    pub fn last_line(&self) -> &str {
        self.lines.back().map_or("", |(_, line)| line.as_str())
    }

    fn enter(&mut self, word: Word) {
        if self.word != word {
            self.word = word;
            self.since = Since::default();
        }
    }

    /// Records a line, decisive or not.
    pub fn note(&mut self, line: &str) {
        let line: String = line.chars().take(LENGTH).collect();
        match line.as_str() {
            // STARTED from a connected agent is a heartbeat.
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

    /// Records the state in the last of the lines that were read together, as Incus does from 7.0.1
    /// on (P§2.3). A read without one clears it.
    pub fn note_state(&mut self, lines: &[&str]) {
        let Some((last, [_, ..])) = lines.split_last() else { return };
        let state = serde_json::from_str(last).ok();
        self.serial_state = state.filter(|state: &Value| state["pid"] == 1);
    }

    /// Applies a decisive line as a real host does (P§2.3).
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

    /// Records the end of a PUT. After a successful PUT, the agent has called back.
    pub fn put(&mut self, mut put: Put) {
        match &mut put.error {
            None => self.enter(Word::Connected),
            Some(error) => {
                error.truncate(error.floor_char_boundary(LONG));
                self.failed(&format!("PUT /1.0: {error}"), put.failure);
            }
        }
        self.last_put = Some(put);
    }

    /// Records that the host has answered a call of the agent, which therefore knows the address.
    /// The agent may have been too slow to confirm it in time, and no real host checks again. A
    /// call before the PUT proves nothing about its result.
    pub fn called(&mut self) {
        if self.word == Word::Started
            && self.last_put.as_ref().is_some_and(|put| put.error.is_some())
        {
            self.enter(Word::Connected);
        }
    }

    /// Records an error between host and guest.
    pub fn failed(&mut self, error: &str, failure: Option<CallFailure>) {
        let text = error.chars().take(LONG).collect();
        self.last_error = Some(LastError { at: SystemTime::now(), text, failure });
    }

    /// Records that the VM is on. What an earlier agent reported no longer applies.
    pub fn power_on(&mut self) {
        if self.word == Word::Stopped {
            self.enter(Word::Unknown);
            self.last_put = None;
            self.last_error = None;
        }
    }

    pub fn power_off(&mut self) {
        self.started = false;
        self.enter(Word::Stopped);
    }

    /// Records that the connection to the guest is lost. A reported end remains.
    pub fn cut(&mut self) {
        self.started = false;
        if self.word != Word::Stopped {
            self.enter(Word::Unknown);
        }
    }

    pub fn to_json(&self) -> Value {
        let line = |(at, line): &(SystemTime, String)| json!({"at": rfc3339(*at), "line": line});
        let put = self.last_put.as_ref().map(|put| {
            json!({"ok": put.error.is_none(), "error": put.error,
                "cause": put.failure.map(word), "at": rfc3339(put.at),
                "ms": millis(put.took)})
        });
        json!({
            "state": self.word,
            "since": rfc3339(self.since.0),
            "since_ms": millis(self.since.1.elapsed()),
            "started": self.started,
            "last_line": self.last_line(),
            "lines": self.lines.iter().map(line).collect::<Vec<_>>(),
            "last_put": put,
            "last_error": self.last_error.as_ref().map(|error| {
                json!({"at": rfc3339(error.at), "text": error.text,
                    "cause": error.failure.map(word)})
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
    fn a_slow_agent_is_connected_by_its_call() {
        let mut agent = AgentState::default();
        // The agent calls, but no line arrives on its port, so the port is at fault.
        agent.called();
        assert_eq!(agent.word, Word::Unknown);
        agent.note("STARTED");
        agent.called();
        assert_eq!(agent.word, Word::Started);
        agent.put(Put {
            error: Some("the peer took too long".into()),
            failure: Some(CallFailure::Slow),
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
    fn the_last_line_determines_the_state() {
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
    fn limits_the_memory_for_lines() {
        let mut agent = AgentState::default();
        for number in 0..100 {
            agent.note(&format!("{number}{}", "x".repeat(1000)));
        }
        let shown = agent.to_json();
        assert_eq!(shown["lines"].as_array().unwrap().len(), LINES);
        assert!(shown["last_line"].as_str().unwrap().len() <= LENGTH);
    }
}
