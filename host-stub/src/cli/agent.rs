//! Commands that ask an agent: `state`, `metrics`, `operations`, `events --agent` (P§4.2 to P§4.6).

use std::io::{Write, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

use mote_client::agent::client::{Agent, connecting};
use mote_client::agent::websocket::Piece;
use mote_client::common::limits;
use mote_client::common::printable::{self, text};
use mote_client::daemon::{self, Known, ask};
use mote_client::exec::run::listen;
use mote_client::net::stream::Limit;
use mote_client::report::{metrics, state};

/// Limit for a request and the greeting before it.
const REQUEST: Duration = Duration::from_secs(20);
/// A real host's limit for state and metrics, including the greeting (P§3.2).
const HOSTS: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct OperationsArgs {
    /// The instance
    name: String,
    /// The action
    #[arg(value_enum, default_value = "list")]
    action: Action,
    /// Id of the operation, except for list
    #[arg(required_if_eq_any = [("action", "show"), ("action", "wait"), ("action", "delete")])]
    id: Option<String>,
    /// For wait: give up after this many seconds
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    timeout: Option<i64>,
    /// For list: print JSON, as the other actions always do
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// List all
    List,
    /// Show one
    Show,
    /// Wait for the end of one
    Wait,
    /// End one
    Delete,
}

pub(crate) fn state(root: &Path, name: &str, json: bool) -> Result<()> {
    let (agent, known) = asked(root, name)?;
    let said = match &known {
        Known::State(state, _) => state.clone(),
        Known::Absent(_) => return Err(known.refused(&agent)),
        Known::Reachable => report(&agent, true, "/1.0/state")?,
    };
    // Agents leave the status to the host (P§4.5).
    let target = format!("/1.0/internal/{name}/agent-state");
    let host = ask(root, "GET", &target, &Value::Null)?;
    state::check(&agent.instance, &said)?;
    let status = text(host["status"].as_str().unwrap_or("-"));
    print(json, &said, &format!("status {status}\n{}\n", printable::pretty_json(&said)))
}

pub(crate) fn metrics(root: &Path, name: &str, json: bool) -> Result<()> {
    let (agent, known) = asked(root, name)?;
    let said = match &known {
        Known::Absent(_) | Known::State(..) => return Err(known.refused(&agent)),
        Known::Reachable => report(&agent, agent.instance.flavour.server().greets, "/1.0/metrics")?,
    };
    let published = metrics::openmetrics(&agent.instance, &said)?;
    print(json, &said, &published)
}

/// Asks for a report. If the agent is too slow for a real host, waits longer and prints a warning,
/// because the machine may be busy.
fn report(agent: &Agent, greets: bool, target: &str) -> Result<Value> {
    let (begun, limit) = (Instant::now(), Limit::within(REQUEST));
    if greets {
        agent.greet(limit)?;
    }
    let said = agent.metadata("GET", target, limit)?;
    let took = begun.elapsed();
    if took > HOSTS {
        let (took, hosts) = (printable::duration(took), printable::duration(HOSTS));
        printable::complain(&format!(
            "the agent took {took} for this; a real host gives up after {hosts}"
        ));
    }
    Ok(said)
}

fn asked(root: &Path, name: &str) -> Result<(Agent, Known)> {
    let (agent, known) = daemon::known(root, name)?;
    if agent.instance.is_false("security.agent.metrics") {
        bail!("security.agent.metrics is false, so the agent is not called");
    }
    Ok((agent, known))
}

fn print(json: bool, said: &Value, readable: &str) -> Result<()> {
    if json {
        return Ok(writeln!(stdout(), "{}", printable::json(said))?);
    }
    Ok(printable::print_exact(readable.as_bytes())?)
}

pub(crate) fn operations(root: &Path, args: &OperationsArgs) -> Result<()> {
    let agent = daemon::reach(root, &args.name)?;
    let one = format!("/1.0/operations/{}", args.id.as_deref().unwrap_or_default());
    let (method, target, limit) = match (args.action, args.timeout) {
        (Action::List, _) => ("GET", "/1.0/operations?recursion=1".to_owned(), Some(REQUEST)),
        (Action::Show, _) => ("GET", one, Some(REQUEST)),
        (Action::Delete, _) => ("DELETE", one, None),
        (Action::Wait, None) => ("GET", format!("{one}/wait"), None),
        (Action::Wait, Some(seconds)) => ("GET", format!("{one}/wait?timeout={seconds}"), None),
    };
    // A wait without a timeout lasts as long as the operation.
    let limit = limit.map_or(Limit::Each(Duration::from_secs(3600)), Limit::within);
    let said = agent.metadata(method, &target, limit)?;
    if args.action == Action::List && args.json {
        return Ok(writeln!(stdout(), "{}", printable::json(&said))?);
    }
    if args.action != Action::List {
        return Ok(writeln!(stdout(), "{}", printable::pretty_json(&said))?);
    }
    let groups = said.as_object().context("operations: not an object")?;
    for operation in groups.values().filter_map(Value::as_array).flatten() {
        let word = |key: &str| text(operation[key].as_str().unwrap_or("-"));
        writeln!(stdout(), "{} {} {}", word("id"), word("status"), word("description"))?;
    }
    Ok(())
}

/// Runs `events NAME --agent`: prints the agent's events, one per line, until it ends.
pub(crate) fn events(root: &Path, name: &str) -> Result<()> {
    let agent = daemon::reach(root, name)?;
    // A request shows why an agent refuses the host; the websocket does not.
    agent.greet(Limit::within(REQUEST))?;
    let mut events = listen(&agent, connecting())?;
    loop {
        match events.receive()? {
            Piece::Text(text) => {
                let event = limits::json(text.as_bytes()).context("an event")?;
                writeln!(stdout(), "{}", printable::json(&event))?;
            }
            Piece::Bytes(_) => bail!("an event arrived as a binary message"),
            Piece::Closed => return Ok(()),
        }
    }
}
