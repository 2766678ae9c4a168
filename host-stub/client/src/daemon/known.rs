//! What the daemon knows of an agent, before it is called.

use std::path::Path;

use anyhow::{Result, anyhow};
use serde_json::Value;

use super::client;
use crate::instance::Instance;

/// The instance, if the host believes that its agent may be called: real hosts try nothing before they
/// have read STARTED (P§0).
pub fn reach(root: &Path, name: &str) -> Result<Instance> {
    match known(root, name)? {
        (instance, Known::Reachable) => Ok(instance),
        (instance, not) => Err(not.refused(&instance)),
    }
}

/// What a host knows of an agent before it calls it.
pub enum Known {
    /// It has not announced itself, or has said goodbye: why.
    Absent(String),
    /// It can be called.
    Reachable,
    /// It cannot be called, and tells its state by the status port (P§2.4): that, and why.
    State(Value, String),
}

impl Known {
    /// What a caller is told: the server's words, then why.
    pub fn refused(&self, instance: &Instance) -> anyhow::Error {
        let absent = instance.flavour.absent();
        match self {
            Self::Reachable => anyhow!(absent),
            Self::Absent(why) | Self::State(_, why) => anyhow!("{absent}: {why}"),
        }
    }
}

/// Returns what asks the daemon whether the VM stands still and may go on.
pub fn pauses(root: &Path, name: &str) -> impl Fn() -> bool + Send + 'static {
    let (root, target) = (root.to_owned(), format!("/1.0/internal/{name}/agent"));
    move || {
        let said = client::ask(&root, "GET", &target, &Value::Null).unwrap_or_default();
        matches!(said["why"]["cause"].as_str(), Some("paused" | "no-space"))
    }
}

/// Asks the daemon.
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
