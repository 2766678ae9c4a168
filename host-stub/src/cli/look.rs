//! Commands that print what the host stores or knows, and those that ask an agent: `state`, `metrics`,
//! `events` (P§4.3 to P§4.6).

use std::io::{Write, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde_json::{Value, json};

use mote_client::agent::client::AGENT_PORT;
use mote_client::agent::websocket::Piece;
use mote_client::common::printable::{text, word};
use mote_client::daemon::{self, Known, ask, order, state_after};
use mote_client::exec::run::listen;
use mote_client::report::{check_state, openmetrics};
use mote_client::{Agent, FailedCall, Limit, complain, connecting, limits, printable};

/// Limit for an agent's greeting, short because the user waits.
const GREETING: Duration = Duration::from_secs(3);

/// Returns what the host knows and, if a host would ask, the agent's description of itself.
/// Includes the cause of an error.
pub(crate) fn asked(root: &Path, name: &str) -> Result<(Value, Option<Result<Value>>)> {
    let said = match daemon::known(root, name)? {
        (agent, Known::Reachable) => Some(agent.metadata("GET", "/1.0", Limit::within(GREETING))),
        (_, Known::Absent(_) | Known::State(..)) => None,
    };
    let error = said.as_ref().and_then(|said| said.as_ref().err());
    let failure = error.and_then(FailedCall::cause);
    Ok((state_after(root, name, failure)?, said))
}

pub(crate) fn why(state: &Value) -> &str {
    state["why"]["text"].as_str().unwrap_or("-")
}

pub(crate) fn explained(root: &Path, error: anyhow::Error) -> anyhow::Error {
    let Some(failed) = FailedCall::of(&error) else { return error };
    let state = state_after(root, &failed.instance, Some(failed.failure));
    match state {
        Ok(state) if state["why"]["cause"] != word(failed.failure) => {
            anyhow!("{} ({})", why(&state), error.root_cause())
        }
        Ok(_) | Err(_) => error,
    }
}

pub(crate) fn get(root: &Path, name: &str, key: &str) -> Result<()> {
    let shown = ask(root, "GET", &format!("/1.0/instances/{name}"), &Value::Null)?;
    let value = shown["config"][key].as_str();
    let value = value.with_context(|| format!("{name} has no {key}"))?;
    Ok(printable::print_exact(format!("{value}\n").as_bytes())?)
}

pub(crate) fn agent_state(root: &Path, name: &str) -> Result<()> {
    Ok(writeln!(stdout(), "{}", printable::json(&daemon::state(root, name)?))?)
}

pub(crate) fn query(root: &Path, name: &str, query: &Value) -> Result<()> {
    let answer = order(root, name, "query", query)?;
    let said = format!("{}\n{}\n", answer["status"], answer["body"].as_str().unwrap_or(""));
    Ok(printable::print_exact(said.as_bytes())?)
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "clap represents a switch as a bool")]
pub(crate) struct ListArgs {
    /// Print only the names
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

pub(crate) fn list(root: &Path, args: &ListArgs) -> Result<()> {
    let all = ask(root, "GET", "/1.0/instances", &Value::Null)?;
    let names: Vec<&str> = all.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut out = stdout().lock();
    if args.quiet {
        return Ok(names.iter().try_for_each(|name| writeln!(out, "{name}"))?);
    }
    let mut rows = vec![["NAME", "STATUS", "AGENT", "SERVER", "FAULT"].map(str::to_owned)];
    let (mut states, mut notes) = (Vec::new(), Vec::new());
    for name in names {
        // The instance was deleted after the list was read.
        let Ok(state) = daemon::state(root, name) else { continue };
        let word = |key: &str| state[key].as_str().unwrap_or("-").to_owned();
        rows.push([name.into(), word("status"), word("state"), word("flavour"), word("fault")]);
        states.push(json!({"name": name, "status": word("status"), "agent": word("state"),
            "server": word("flavour"), "fault": word("fault"), "why": state["why"]}));
        // Without this, the row would contradict itself.
        if state["status"] != "Stopped" && state["state"] == "STOPPED" {
            notes.push(format!("{name}: {}", why(&state)));
        }
    }
    if args.json {
        return Ok(writeln!(out, "{}", printable::json(&json!(states)))?);
    }
    write!(out, "{}", table(&rows))?;
    notes.iter().for_each(|note| complain(note));
    Ok(())
}

fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut shown = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let widths = rows.iter().filter_map(|row| row.get(column)).map(String::len);
            let width = widths.max().unwrap_or(0);
            line += &format!("{cell:width$}  ");
        }
        shown += &format!("{}\n", line.trim_end());
    }
    shown
}

pub(crate) fn info(root: &Path, name: &str, json: bool) -> Result<()> {
    // Print the row even if the agent does not answer.
    let (mut state, said) = asked(root, name)?;
    let said = said.map(|said| said.map_err(|error| error.root_cause().to_string()));
    if !json {
        return Ok(write!(stdout(), "{}", described(name, &state, said))?);
    }
    state["name"] = json!(name);
    state["program"] = said.and_then(Result::ok).unwrap_or_default()["environment"].clone();
    Ok(writeln!(stdout(), "{}", printable::json(&state))?)
}

fn described(name: &str, state: &Value, said: Option<Result<Value, String>>) -> String {
    let word = |key: &str| match state[key].as_str() {
        None | Some("") => "-".to_owned(),
        Some(word) => text(word),
    };
    let server = match state["flavour"].as_str() {
        Some("incus") => "Incus".to_owned(),
        Some("lxd") => "LXD, 5.20 and later".to_owned(),
        Some("lxd-micro") => "LXD with micro VMs".to_owned(),
        Some("lxd-5.0") => "LXD, before 5.20".to_owned(),
        other => other.unwrap_or("-").to_owned(),
    };
    let lasted = Duration::from_millis(state["since_ms"].as_u64().unwrap_or(0));
    let agent = format!("{} for {}", word("state"), printable::duration(lasted));
    let program = match said {
        None => "-".to_owned(),
        Some(Err(why)) => format!("does not answer: {}", text(&why)),
        Some(Ok(said)) => program(&said["environment"]),
    };
    let uptime = state["running_ms"].as_u64().map_or("-".to_owned(), |millis| {
        format!("at least {}", printable::duration(Duration::from_millis(millis)))
    });
    let (connections, resumed) = (&state["connections"], &state["resumed"]);
    let rows = [
        ("Name", name.to_owned()),
        ("Status", word("status")),
        ("Server", server),
        ("Agent", agent),
        ("In words", text(why(state))),
        ("Program", program),
        ("Uptime", uptime),
        ("Guest", format!("{}, port {AGENT_PORT}", way(&state["vsock"]))),
        ("Host", format!("vsock 2:{}", state["port"])),
        ("Status port", port(&state["channel"])),
        ("Calls", format!("{connections}, {resumed} resumed; the last: {}", word("last_request"))),
        ("Last line", state["port_alone"].as_str().map_or_else(|| word("last_line"), text)),
        ("Last PUT", text(&last_put(state))),
        ("Last error", text(&last_error(state))),
        ("Fault", word("fault")),
    ];
    rows.iter().map(|(what, value)| format!("{what:<12} {value}\n")).collect()
}

fn last_put(state: &Value) -> String {
    let put = &state["last_put"];
    let at = put["at"].as_str().unwrap_or("");
    match (put.is_null(), put["error"].as_str()) {
        (true, _) => "-".to_owned(),
        (false, None) => format!("ok in {} ms, {at}", put["ms"]),
        (false, Some(why)) => format!("failed after {} ms, {at}: {why}", put["ms"]),
    }
}

fn last_error(state: &Value) -> String {
    let error = &state["last_error"];
    match (error["text"].as_str(), error["at"].as_str()) {
        (Some(text), Some(at)) => format!("{text} ({at})"),
        _ => "-".to_owned(),
    }
}

fn program(environment: &Value) -> String {
    let word = |key: &str| text(environment[key].as_str().unwrap_or("-"));
    // An agent must report the name of the server's agent; mote adds its own name.
    let own =
        environment["agent"].as_str().map_or(String::new(), |own| format!("{} as ", text(own)));
    let [server, version, kernel, release, machine] =
        ["server", "server_version", "kernel", "kernel_version", "kernel_architecture"].map(word);
    format!("{own}{server} {version}, {kernel} {release} on {machine}")
}

fn way(vsock: &Value) -> String {
    match (vsock["cid"].as_u64(), vsock["uds"].as_str(), vsock["plain"].as_str()) {
        (Some(cid), _, _) => format!("vsock {cid}"),
        (None, Some(path), _) => format!("vsock by {path}"),
        (None, None, Some(prefix)) => format!("unix sockets {prefix}"),
        (None, None, None) => "-".to_owned(),
    }
}

fn port(channel: &Value) -> String {
    match (channel["qmp"].as_str(), channel["serial"]["path"].as_str()) {
        (Some(path), _) => format!("ring buffer, through QEMU's monitor {path}"),
        (None, Some(path)) => format!("socket {path}"),
        (None, None) => "-".to_owned(),
    }
}

/// Limit for a request and the greeting before it.
const REQUEST: Duration = Duration::from_secs(20);
/// A real host's limit for state and metrics, including the greeting (P§3.2).
const HOSTS: Duration = Duration::from_secs(3);

pub(crate) fn state(root: &Path, name: &str, json: bool) -> Result<()> {
    let (agent, known) = permitted(root, name)?;
    let said = match &known {
        Known::State(state, _) => state.clone(),
        Known::Absent(_) => return Err(known.refused(&agent)),
        Known::Reachable => report(&agent, true, "/1.0/state")?,
    };
    // Agents leave the status to the host (P§4.5).
    let host = daemon::state(root, name)?;
    check_state(&agent.instance, &said)?;
    let status = text(host["status"].as_str().unwrap_or("-"));
    print(json, &said, &format!("status {status}\n{}\n", printable::pretty_json(&said)))
}

pub(crate) fn metrics(root: &Path, name: &str, json: bool) -> Result<()> {
    let (agent, known) = permitted(root, name)?;
    let said = match &known {
        Known::Absent(_) | Known::State(..) => return Err(known.refused(&agent)),
        Known::Reachable => report(&agent, agent.instance.flavour.server().greets, "/1.0/metrics")?,
    };
    let published = openmetrics(&agent.instance, &said)?;
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
        complain(&format!("the agent took {took} for this; a real host gives up after {hosts}"));
    }
    Ok(said)
}

fn permitted(root: &Path, name: &str) -> Result<(Agent, Known)> {
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

/// Runs `events NAME`: prints the agent's events, one per line, until it ends.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_width_of_its_widest_cell() {
        let rows = [["NAME", "STATUS"], ["a-long-name", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "NAME         STATUS\na-long-name  x\n");
    }

    #[test]
    fn uses_an_agents_own_name() {
        let said = |own: Value| {
            json!({"environment": {"server": "lxd-agent", "server_version": "0.1.0", "agent": own,
            "kernel": "Linux", "kernel_version": "6.1", "kernel_architecture": "x86_64"}})
        };
        let program = |own| program(&said(own)["environment"]);
        let server = "lxd-agent 0.1.0, Linux 6.1 on x86_64";
        assert_eq!(program(json!("mote-agent")), format!("mote-agent as {server}"));
        assert_eq!(program(Value::Null), server);
    }
}
