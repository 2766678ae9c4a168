//! `list` and `info`: instances and their states, for people.

use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::look;
use mote_client::common::printable::{self, Shape, text};
use mote_client::daemon::ask;

/// The agent's port (P§3.2).
const AGENT_PORT: u32 = 8443;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "to clap a switch is a bool")]
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
        // Deleted since the list was read.
        let Ok(state) = look::state(root, name) else { continue };
        let word = |key: &str| state[key].as_str().unwrap_or("-").to_owned();
        rows.push([name.into(), word("status"), word("state"), word("flavour"), word("fault")]);
        states.push(json!({"name": name, "status": word("status"), "agent": word("state"),
            "server": word("flavour"), "fault": word("fault"), "why": state["why"]}));
        // Otherwise the row would contradict itself.
        if state["status"] != "Stopped" && state["state"] == "STOPPED" {
            notes.push(format!("{name}: {}", look::why(&state)));
        }
    }
    if args.json {
        return Ok(writeln!(out, "{}", printable::json(&json!(states)))?);
    }
    write!(out, "{}", table(&rows))?;
    notes.iter().for_each(|note| printable::complain(note));
    Ok(())
}

/// Formats columns as wide as their widest cell.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut shown = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let widths = rows.iter().filter_map(|row| row.get(column)).map(String::len);
            let width = widths.max().unwrap_or(0);
            line += &format!("{cell:width$}  ");
        }
        shown += line.trim_end();
        shown.push('\n');
    }
    shown
}

pub(crate) fn info(root: &Path, name: &str, shape: Shape) -> Result<()> {
    // Printed even if the agent does not answer.
    let (mut state, said) = look::asked(root, name)?;
    let said = said.map(|said| said.map_err(|error| error.root_cause().to_string()));
    match shape {
        Shape::Text => write!(stdout(), "{}", described(name, &state, said))?,
        Shape::Json => {
            state["name"] = json!(name);
            state["program"] = match said {
                Some(Ok(said)) => said["environment"].clone(),
                Some(Err(_)) | None => Value::Null,
            };
            writeln!(stdout(), "{}", printable::json(&state))?;
        }
    }
    Ok(())
}

/// Returns the rows of `info`.
fn described(name: &str, state: &Value, said: Option<Result<Value, String>>) -> String {
    let word = |key: &str| match state[key].as_str() {
        None | Some("") => "-".to_owned(),
        Some(word) => text(word),
    };
    let server = match state["flavour"].as_str() {
        Some("incus") => "Incus".to_owned(),
        Some("lxd") => "LXD, 5.20 and later".to_owned(),
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
        ("In words", text(look::why(state))),
        ("Program", program),
        ("Uptime", uptime),
        ("Guest", format!("{}, port {AGENT_PORT}", way(&state["vsock"]))),
        ("Host", format!("vsock 2:{}", state["port"])),
        ("Status port", port(&state["channel"])),
        ("Calls", format!("{connections}, {resumed} resumed; the last: {}", word("last_request"))),
        (
            "Last line",
            state["port_alone"].as_str().map_or_else(|| word("last_line"), str::to_owned),
        ),
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

/// Returns an agent's description of itself.
fn program(environment: &Value) -> String {
    let word = |key: &str| text(environment[key].as_str().unwrap_or("-"));
    // An agent must use the name of the server's own; mote adds its own name.
    let own =
        environment["agent"].as_str().map_or(String::new(), |own| format!("{} as ", text(own)));
    format!(
        "{own}{} {}, {} {} on {}",
        word("server"),
        word("server_version"),
        word("kernel"),
        word("kernel_version"),
        word("kernel_architecture")
    )
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
        (Some(path), _) => format!("ring buffer, by QEMU's monitor {path}"),
        (None, Some(path)) => format!("socket {path}"),
        (None, None) => "-".to_owned(),
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
        assert_eq!(
            program(json!("mote-agent")),
            "mote-agent as lxd-agent 0.1.0, Linux 6.1 on x86_64"
        );
        assert_eq!(program(Value::Null), "lxd-agent 0.1.0, Linux 6.1 on x86_64");
    }
}
