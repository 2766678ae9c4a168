//! What the daemon knows of an agent, before it is called.

use std::path::Path;

use anyhow::{Result, bail};
use serde_json::Value;

use super::client;
use crate::instance::Instance;

/// The instance, if the host believes that its agent may be called: real hosts try nothing before they
/// have read STARTED (P§0).
pub(crate) fn reach(root: &Path, name: &str) -> Result<Instance> {
    match known(root, name)? {
        (instance, Known::Reachable) => Ok(instance),
        (instance, Known::Absent | Known::State(_)) => bail!(instance.flavour.absent()),
    }
}

/// What a host knows of an agent before it calls it.
pub(crate) enum Known {
    /// It has not announced itself, or has said goodbye.
    Absent,
    /// It can be called.
    Reachable,
    /// It cannot be called, and tells its state by the status port (P§2.4).
    State(Value),
}

/// Asks the daemon.
pub(crate) fn known(root: &Path, name: &str) -> Result<(Instance, Known)> {
    let target = format!("/1.0/internal/{name}/agent");
    let mut said = client::ask(root, "GET", &target, &Value::Null)?;
    let instance = serde_json::from_value(said["instance"].take())?;
    let known = match (said["state"].take(), said["reachable"] == true) {
        (Value::Null, true) => Known::Reachable,
        (Value::Null, false) => Known::Absent,
        (state, _) => Known::State(state),
    };
    Ok((instance, known))
}
