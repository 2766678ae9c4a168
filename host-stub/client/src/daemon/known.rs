//! What the daemon knows about an agent before a call to it.

use std::path::Path;

use anyhow::{Result, anyhow};
use serde_json::Value;

use super::client;
use crate::instance::Instance;

/// Returns the instance if the daemon considers its agent reachable. Real hosts call no agent
/// before they have read STARTED (P§0).
pub fn reach(root: &Path, name: &str) -> Result<Instance> {
    match known(root, name)? {
        (instance, Known::Reachable) => Ok(instance),
        (instance, not) => Err(not.refused(&instance)),
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
    pub fn refused(&self, instance: &Instance) -> anyhow::Error {
        let absent = instance.flavour.absent();
        match self {
            Self::Reachable => anyhow!(absent),
            Self::Absent(why) | Self::State(_, why) => anyhow!("{absent}: {why}"),
        }
    }
}

/// Returns a function that asks the daemon whether the VM is paused.
pub fn pauses(root: &Path, name: &str) -> impl Fn() -> bool + Send + 'static {
    let (root, target) = (root.to_owned(), format!("/1.0/internal/{name}/agent"));
    move || {
        let said = client::ask(&root, "GET", &target, &Value::Null).unwrap_or_default();
        matches!(said["why"]["cause"].as_str(), Some("paused" | "no-space"))
    }
}

/// Asks the daemon about an agent.
pub fn known(root: &Path, name: &str) -> Result<(Instance, Known)> {
    let target = format!("/1.0/internal/{name}/agent");
    let mut said = client::ask(root, "GET", &target, &Value::Null)?;
    let instance = serde_json::from_value(said["instance"].take())?;
    let why = said["why"]["text"].as_str().unwrap_or_default().to_owned();
    let known = match (said["state"].take(), said["reachable"] == true) {
        (Value::Null, true) => Known::Reachable,
        (Value::Null, false) => Known::Absent(why),
        (state, _) => Known::State(state, why),
    };
    Ok((instance, known))
}
