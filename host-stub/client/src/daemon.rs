//! The client of the daemon's control socket, and what the daemon knows about an agent before a
//! call to it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::clock::until;
use crate::common::printable::{quoted, word};
use crate::net::http::{read_answer, write_request};
use crate::{Agent, CallFailure, Limit, Timed, limits};

/// Limit for an answer of the daemon, which may have to call the agent first.
const ASK: Duration = Duration::from_secs(20);
/// How long to wait for a daemon that was just started in the background, and the interval between
/// attempts.
const ARRIVAL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(20));

pub fn path(root: &Path) -> PathBuf {
    root.join("control.sock")
}

pub fn is_running(root: &Path) -> bool {
    UnixStream::connect(path(root)).is_ok()
}

/// Connects to the daemon, and waits for one that is about to listen.
fn arrived<T, E>(root: &Path, mut connect: impl FnMut() -> Result<T, E>) -> Result<T> {
    let (limit, pause) = ARRIVAL;
    let stream = until(limit, pause, || match connect() {
        Ok(stream) => Some(Some(stream)),
        Err(_) => (!root.exists()).then_some(None),
    });
    stream.flatten().with_context(|| {
        let (root, word) = (root.display(), quoted(&root.display().to_string()));
        format!("no daemon is running in {root}; mote-host --dir {word} daemon starts one")
    })
}

pub fn ask(root: &Path, method: &str, target: &str, body: &Value) -> Result<Value> {
    let limit = Limit::within(ASK);
    let mut stream = arrived(root, || Timed::connect(&path(root), limit))?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    write_request(&mut stream, method, target, body.as_bytes())?;
    let answer = read_answer(&mut stream, limits::CONTROL)?;
    let value = answer.json()?;
    if answer.status != 200 {
        bail!("{}", value["error"].as_str().unwrap_or("refused"));
    }
    Ok(value)
}

/// Returns what the daemon knows about an instance's agent, its VM included.
pub fn state(root: &Path, name: &str) -> Result<Value> {
    state_after(root, name, None)
}

/// Like [`state`], with the cause of a call that just failed, which the diagnosis considers.
pub fn state_after(root: &Path, name: &str, failure: Option<CallFailure>) -> Result<Value> {
    let met = failure.map_or(String::new(), |failure| format!("?failure={}", word(failure)));
    ask(root, "GET", &format!("/1.0/internal/{name}/agent-state{met}"), &Value::Null)
}

/// Sends an order for an instance.
pub fn order(root: &Path, name: &str, what: &str, body: &Value) -> Result<Value> {
    ask(root, "POST", &format!("/1.0/instances/{name}/{what}"), body)
}

/// Returns the agent if the daemon considers it reachable. Real hosts call no agent before they
/// have read STARTED (P§0).
pub fn reach(root: &Path, name: &str) -> Result<Agent> {
    match known(root, name)? {
        (agent, Known::Reachable) => Ok(agent),
        (agent, not) => Err(not.refused(&agent)),
    }
}

/// What the daemon knows about an agent.
pub enum Known {
    /// The agent has not reported itself, or has reported its end; the text is the reason.
    Absent(String),
    Reachable,
    /// The agent cannot be called (the text is the reason), but reports this state over the status
    /// port (P§2.4).
    State(Value, String),
}

impl Known {
    /// Returns the error for a caller: the server's words, then the reason.
    pub fn refused(&self, agent: &Agent) -> anyhow::Error {
        let absent = agent.instance.flavour.server().absent;
        match self {
            Self::Reachable => anyhow!(absent),
            Self::Absent(why) | Self::State(_, why) => anyhow!("{absent}: {why}"),
        }
    }
}

/// Returns a function that asks the daemon whether the VM is paused.
pub fn pauses(agent: &Agent) -> impl Fn() -> bool + Send + 'static {
    let (root, name) = (agent.root.clone(), agent.instance.name.clone());
    move || {
        let said = ask_about(&root, &name).unwrap_or_default();
        matches!(said["why"]["cause"].as_str(), Some("paused" | "no-space"))
    }
}

fn ask_about(root: &Path, name: &str) -> Result<Value> {
    ask(root, "GET", &format!("/1.0/internal/{name}/agent"), &Value::Null)
}

pub fn known(root: &Path, name: &str) -> Result<(Agent, Known)> {
    let mut said = ask_about(root, name)?;
    let agent =
        Agent { root: root.to_owned(), instance: serde_json::from_value(said["instance"].take())? };
    let why = said["why"]["text"].as_str().unwrap_or_default().to_owned();
    let known = match (said["state"].take(), said["reachable"] == true) {
        (Value::Null, true) => Known::Reachable,
        (Value::Null, false) => Known::Absent(why),
        (state, _) => Known::State(state, why),
    };
    Ok((agent, known))
}
