//! Commands that print what the host stores or knows.

use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use serde_json::{Value, json};

use super::agent;
use mote_client::agent::call_failure::{CallFailure, FailedCall};
use mote_client::common::printable;
use mote_client::daemon::{self, Known};
use mote_client::daemon::{ask, print_events};
use mote_client::net::stream::Limit;

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The instance
    name: String,
    /// The configuration key
    key: String,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Only this instance
    name: Option<String>,
    /// The agent's own events instead of the host's
    #[arg(long, requires = "name")]
    agent: bool,
}

/// Arguments of `query`.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// The instance
    name: String,
    /// GET, PUT, POST ...
    method: String,
    /// For example /1.0
    path: String,
    /// The body of the request
    #[arg(default_value = "", allow_hyphen_values = true)]
    body: String,
}

fn stored(root: &Path, name: &str) -> Result<Value> {
    ask(root, "GET", &format!("/1.0/instances/{name}"), &Value::Null)
}

/// Returns the host's knowledge of an agent.
pub(crate) fn state(root: &Path, name: &str) -> Result<Value> {
    known_with(root, name, None)
}

/// Returns the same, given the cause of a call that just failed.
fn known_with(root: &Path, name: &str, failure: Option<CallFailure>) -> Result<Value> {
    let met = failure.map_or(String::new(), |failure| format!("?failure={}", failure.name()));
    ask(root, "GET", &format!("/1.0/internal/{name}/agent-state{met}"), &Value::Null)
}

/// Limit for an agent's greeting, short because the user waits.
const GREETING: Duration = Duration::from_secs(3);

/// Returns the host's knowledge and, if a host would ask, the agent's description of itself. The
/// cause of an error is included.
pub(crate) fn asked(root: &Path, name: &str) -> Result<(Value, Option<Result<Value>>)> {
    let said = match daemon::known(root, name)? {
        (agent, Known::Reachable) => Some(agent.metadata("GET", "/1.0", Limit::within(GREETING))),
        (_, Known::Absent(_) | Known::State(..)) => None,
    };
    let error = said.as_ref().and_then(|said| said.as_ref().err());
    let failure = error.and_then(FailedCall::of).map(|failed| failed.failure);
    Ok((known_with(root, name, failure)?, said))
}

/// Returns why an agent in this state is not connected.
pub(crate) fn why(state: &Value) -> &str {
    state["why"]["text"].as_str().unwrap_or("-")
}

/// Adds the daemon's diagnosis in front of a command's error.
pub(crate) fn explained(root: &Path, error: anyhow::Error) -> anyhow::Error {
    let Some(failed) = FailedCall::of(&error) else { return error };
    let state = known_with(root, &failed.instance, Some(failed.failure));
    match state {
        Ok(state) if state["why"]["cause"] != failed.failure.name() => {
            anyhow!("{} ({})", why(&state), error.root_cause())
        }
        Ok(_) | Err(_) => error,
    }
}

pub(crate) fn show(root: &Path, name: &str) -> Result<()> {
    Ok(writeln!(stdout(), "{}", printable::pretty_json(&stored(root, name)?))?)
}

pub(crate) fn get(root: &Path, args: &GetArgs) -> Result<()> {
    let shown = stored(root, &args.name)?;
    let value = shown["config"][&args.key].as_str();
    let value = value.with_context(|| format!("{} has no {}", args.name, args.key))?;
    Ok(printable::print_exact(format!("{value}\n").as_bytes())?)
}

pub(crate) fn agent_state(root: &Path, name: &str) -> Result<()> {
    Ok(writeln!(stdout(), "{}", printable::json(&state(root, name)?))?)
}

pub(crate) fn events(root: &Path, args: &EventsArgs) -> Result<()> {
    match (&args.name, args.agent) {
        (Some(name), true) => agent::events(root, name),
        (name, _) => print_events(root, name.as_deref()),
    }
}

pub(crate) fn query(root: &Path, args: &QueryArgs) -> Result<()> {
    let query = json!({"method": args.method, "path": args.path, "body": args.body});
    let answer = ask(root, "POST", &format!("/1.0/instances/{}/query", args.name), &query)?;
    let said = format!("{}\n{}\n", answer["status"], answer["body"].as_str().unwrap_or(""));
    Ok(printable::print_exact(said.as_bytes())?)
}
