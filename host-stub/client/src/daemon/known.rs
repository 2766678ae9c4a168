//! What the daemon knows about an agent before a call to it.

use std::path::Path;

use anyhow::{Result, anyhow};
use serde_json::Value;

use super::client;
use crate::agent::client::Agent;

/// Returns the agent if the daemon considers it reachable. Real hosts call no agent before they have
/// read STARTED (P§0).
pub fn reach(root: &Path, name: &str) -> Result<Agent> {
    match known(root, name)? {
        (agent, Known::Reachable) => Ok(agent),
        (agent, not) => Err(not.refused(&agent)),
    }
}

/// What the daemon knows about an agent.
pub enum Known {
    /// It has not reported itself or has reported its end, with the reason.
    Absent(String),
    Reachable,
    /// It cannot be called, but reports its state over the status port (P§2.4): the state, and the
    /// reason.
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
        let said = ask(&root, &name).unwrap_or_default();
        matches!(said["why"]["cause"].as_str(), Some("paused" | "no-space"))
    }
}

fn ask(root: &Path, name: &str) -> Result<Value> {
    client::ask(root, "GET", &format!("/1.0/internal/{name}/agent"), &Value::Null)
}

/// Asks the daemon about an agent.
pub fn known(root: &Path, name: &str) -> Result<(Agent, Known)> {
    let mut said = ask(root, name)?;
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
