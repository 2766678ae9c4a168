//! `exec`: a command in the guest, with the same calls and sockets as the servers' own client (P§4.1).
//!
//! ```text
//! GET /1.0 → events → POST exec → sockets: control, 0, 1, 2 (or control, 0)
//! stdin ─▶ 0 ─▶ barrier     1, 2 ─▶ stdout, stderr until barrier     signals, sizes ─▶ control
//! all output done: goodbye on control     operation ended: exit with its `return`
//! ```

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::request::{Exec, Terminal};
use super::sockets::Sockets;
use super::terminal::Raw;
use crate::agent::client::complaint;
use crate::agent::websocket::{self, Incoming, Piece, Silent};
use crate::clock::until;
use crate::daemon::{self, Known};
use crate::files::session;
use crate::instance::vsock_device;
use crate::{Agent, Flavour, Limit, complain, connecting, limits, printable};

const REQUEST: Duration = Duration::from_secs(20);
/// How long to wait for output after a failed operation.
const REST: Duration = Duration::from_secs(2);
/// How long the output of a successful operation may pause. It always ends unless the agent is
/// faulty.
const STILL: Duration = Duration::from_secs(20);
/// How long to wait until the daemon learns of the end of the VM or of its agent.
const LEARNT: Duration = Duration::from_secs(1);
/// Interval between queries during that time.
const LOST_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The extension without which an agent ignores user, group and directory (P§3.4).
const IDENTITY: &str = "container_exec_user_group_cwd";
/// Exit code if the connection to the guest is lost.
const DISCONNECTED: u8 = 129;
/// Why a guest was lost, if no better reason is known.
const RESET: &str = "the guest has lost its connections, as after a suspend";
/// Exit code for a command that exited 0 but lost part of its output.
const INCOMPLETE: u8 = 1;

pub fn run(root: &Path, exec: &Exec) -> Result<u8> {
    let agent = daemon::reach(root, &exec.name)?;
    knows_users(&agent, exec, Limit::within(REQUEST))?;
    let End { outcome, body, lost: output } = whole(&agent, exec)?;
    output.iter().for_each(|why| complain(why));
    let code = match outcome {
        Err(why) => {
            complain(&format!("Disconnected: {}", lost(&agent, why)));
            DISCONNECTED
        }
        Ok(outcome) => {
            let code = outcome.exit_code()?;
            cannot_run(&agent, code, &body).iter().for_each(|why| complain(why));
            code
        }
    };
    // A command whose output is incomplete has not succeeded.
    Ok(if output.is_empty() { code } else { code.max(INCOMPLETE) })
}

/// Runs a command to its end.
fn whole(agent: &Agent, exec: &Exec) -> Result<End> {
    let events = listen(agent, connecting())?;
    let asked = Asked::new(agent, exec, Limit::within(REQUEST))?;
    asked.run(agent, exec, events, connecting(), || {})
}

/// Asks the guest to power off as its server does: a micro VM by `poweroff`, others by the power
/// button. Returns whether there was a way to ask, at the latest after `limit`.
pub fn switch_off(root: &Path, name: &str, limit: Duration) -> Result<bool> {
    let (agent, known) = daemon::known(root, name)?;
    match (agent.instance.flavour, known) {
        (Flavour::LxdMicro, Known::Reachable) => {
            let (end, ended) = channel();
            spawn(move || end.send(power_off(&agent)));
            // A guest may never end the command.
            ended.recv_timeout(limit).unwrap_or(Ok(())).map(|()| true)
        }
        (Flavour::LxdMicro, not) => Err(not.refused(&agent)),
        _ => Ok(daemon::order(root, name, "stop", &Value::Null)?["ordered"] == true),
    }
}

/// Runs `poweroff`. The connection ends with the VM.
fn power_off(agent: &Agent) -> Result<()> {
    let command = vec!["poweroff".into()];
    let (no_stdin, keeps_signals, terminal) = (true, true, Terminal::NO);
    let exec = Exec { command, no_stdin, keeps_signals, terminal, ..Exec::default() };
    let ended = whole(agent, &exec)?;
    let Ok(outcome) = ended.outcome else { return Ok(()) };
    // The agent may end first and kill the command.
    match cannot_run(agent, outcome.exit_code()?, &ended.body) {
        Some(why) => bail!("poweroff: {why}"),
        None => Ok(()),
    }
}

pub fn knows_users(agent: &Agent, exec: &Exec, limit: Limit) -> Result<()> {
    let extensions = agent.greet(limit)?;
    if exec.needs_identity() && !extensions.iter().any(|name| name == IDENTITY) {
        bail!("The server is missing the required \"{IDENTITY}\" API extension");
    }
    Ok(())
}

pub fn listen(agent: &Agent, limit: Limit) -> Result<Incoming> {
    let mut events = websocket::connect(agent, "/1.0/events", limit).context("events")?.incoming;
    events.watch(&agent.instance, daemon::pauses(agent));
    Ok(events)
}

/// A command that the agent has accepted. It starts the command once its sockets are connected.
pub struct Asked {
    body: Value,
    pub(super) id: String,
    /// The secret of each socket, keyed by the socket's name.
    pub(super) fds: Value,
}

impl Asked {
    /// Sends the request and checks the answer as a real client does (P§4.1).
    pub fn new(agent: &Agent, exec: &Exec, limit: Limit) -> Result<Self> {
        let body = exec.body(&agent.instance, exec.is_interactive());
        let answer = agent.request("POST", "/1.0/exec", body.to_string().as_bytes(), limit)?;
        let envelope = answer.json().with_context(|| complaint(&answer.body))?;
        if envelope["type"] == "error" || answer.status != 202 {
            bail!("{}", complaint(&answer.body));
        }
        let operation = &envelope["metadata"];
        let id = operation["id"].as_str().context("the operation has no id")?.to_owned();
        let path = format!("/1.0/operations/{id}");
        if envelope["type"] != "async" || envelope["operation"] != path.as_str() {
            bail!("not an operation envelope: {envelope}");
        }
        if answer.header("location") != Some(path.as_str()) {
            bail!("Location is {:?}, not {path}", answer.header("location"));
        }
        Ok(Self { body, id, fds: operation["metadata"]["fds"].clone() })
    }

    /// Connects the sockets, which starts the command, and waits for its end.
    pub fn run(
        self,
        agent: &Agent,
        exec: &Exec,
        mut events: Incoming,
        limit: Limit,
        started: impl FnOnce(),
    ) -> Result<End> {
        let sockets = Sockets::connect(agent, &self, exec, limit)?;
        let raw = if exec.is_interactive() { Raw::begin()? } else { None };
        let output = sockets.serve(exec)?;
        started();
        let ended = wait(agent, &self.id, &mut events);
        let is_reset = ended.as_ref().is_ok_and(|(_, is_reset)| *is_reset);
        let outcome = ended.map(|(outcome, _)| outcome);
        let (mut lost, mut is_open) = (Vec::new(), false);
        match &outcome {
            Ok(Outcome { error: None, .. }) => {
                // The guest has lost its other connections, too, but no reset arrives on these to
                // show that.
                let still = if is_reset { REST } else { STILL };
                (lost, is_open) = output.wait_while_it_flows(still);
            }
            Ok(Outcome { error: Some(_), .. }) => output.wait(REST),
            Err(_) => {}
        }
        drop(raw);
        if is_open && is_reset {
            lost.push(format!("{RESET}; output may be missing"));
        } else if is_open {
            complain(
                "the command has ended, but another process still holds its output open: gave up",
            );
        }
        Ok(End { outcome, body: self.body, lost })
    }
}

pub struct End {
    /// The command's exit code or signal, or why neither is known (exit code 129); may be empty.
    pub outcome: Result<Outcome, String>,
    pub body: Value,
    /// Reasons why part of its output was lost.
    pub lost: Vec<String>,
}

/// Returns why a guest was lost; waits up to [`LEARNT`] for the daemon to learn the reason.
fn lost(agent: &Agent, why: String) -> String {
    if !why.is_empty() {
        return why;
    }
    if let Some(why) = vsock_device::why_stopped(&agent.instance) {
        return why;
    }
    let known = until(LEARNT, LOST_LOOK_INTERVAL, || {
        match daemon::known(&agent.root, &agent.instance.name) {
            Ok((_, Known::Reachable)) => None,
            Ok((_, Known::Absent(why) | Known::State(_, why))) => Some(why),
            Err(_) => Some(String::new()),
        }
    });
    known.filter(|why| !why.is_empty()).unwrap_or_else(|| RESET.to_owned())
}

/// Returns the message for a code with which agents report that a command cannot be run. 127 may
/// mean a missing command or directory (P§4.1), so the guest is asked for the directory.
pub fn cannot_run(agent: &Agent, code: u8, body: &Value) -> Option<String> {
    match code {
        126 => Some("Command not executable".to_owned()),
        127 => Some(match body["cwd"].as_str() {
            Some(cwd) if !cwd.is_empty() && session::is_no_directory(agent, Path::new(cwd)) => {
                format!("the guest has no directory {} for the command", printable::name(cwd))
            }
            _ => no_command(body),
        }),
        _ => None,
    }
}

/// Returns the message for a missing command. A shell exits 127 as well if it does not find one.
fn no_command(body: &Value) -> String {
    let command = body["command"][0].as_str().unwrap_or_default();
    let where_to = match (command.contains('/'), body["environment"]["PATH"].as_str()) {
        (true, _) => {
            "the guest has no such file; PATH applies only to a name without a slash".to_owned()
        }
        (false, Some(path)) => format!("PATH is {}", printable::name(path)),
        (false, None) => {
            "the agent's own PATH applies: give the full path, or -e PATH=DIR:DIR".to_owned()
        }
    };
    format!("Command not found: {}, or its interpreter ({where_to})", printable::name(command))
}

/// Limit for a query of the operation.
const OPERATION_LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// This status and higher ones are final.
const FINAL: u64 = 200;
const SUCCESS: u64 = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `metadata.return`.
    pub code: Option<i64>,
    pub error: Option<String>,
}

impl Outcome {
    pub fn exit_code(&self) -> Result<u8> {
        match (self.code, &self.error) {
            // Truncate to a byte as `exit` does: -1 becomes 255.
            (Some(code @ (126 | 127)), _) | (Some(code), None) => Ok(u8::try_from(code & 0xff)?),
            (_, Some(error)) => bail!("{error}"),
            (None, None) => bail!("the operation has no exit code"),
        }
    }
}

/// Waits until `events` report the end of `id`. Also returns whether that connection was lost.
fn wait(agent: &Agent, id: &str, events: &mut Incoming) -> Result<(Outcome, bool), String> {
    // The operation may have ended before the events were connected.
    if let Ok(Some(outcome)) = look(agent, id) {
        return Ok((outcome, false));
    }
    let is_lost = loop {
        match events.receive() {
            Ok(Piece::Text(text)) => {
                let Ok(event) = limits::json(text.as_bytes()) else { continue };
                let operation = &event["metadata"];
                if event["type"] != "operation" || operation["id"] != id {
                    continue;
                }
                match outcome(operation) {
                    Ok(Some(outcome)) => return Ok((outcome, false)),
                    Ok(None) => {}
                    Err(_) => return Err(String::new()),
                }
            }
            Ok(Piece::Bytes(_)) => {}
            Ok(Piece::Closed) => break false,
            Err(error) if error.is::<Silent>() => return Err(error.to_string()),
            Err(_) => break true,
        }
    };
    let outcome = look(agent, id).ok().flatten();
    Ok((outcome.ok_or_else(String::new)?, is_lost))
}

fn look(agent: &Agent, id: &str) -> Result<Option<Outcome>> {
    let target = format!("/1.0/operations/{id}");
    let shown = agent.metadata("GET", &target, Limit::within(OPERATION_LOOK_TIMEOUT))?;
    if shown["id"] != id {
        bail!("asked for operation {id}, got {}", shown["id"]);
    }
    outcome(&shown)
}

fn outcome(operation: &Value) -> Result<Option<Outcome>> {
    let status = operation["status_code"].as_u64().context("the operation has no status")?;
    if status < FINAL {
        return Ok(None);
    }
    let error = operation["err"].as_str().unwrap_or_default();
    let error = match (status, error) {
        (SUCCESS, _) => None,
        (_, "") => Some(format!("operation ended with status {status}")),
        (_, text) => Some(text.to_owned()),
    };
    Ok(Some(Outcome { code: operation["metadata"]["return"].as_i64(), error }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_a_missing_command_and_its_search_path() {
        for (body, said) in [
            (
                json!({"command": ["x\x1b", "y"]}),
                "x\\x1b, or its interpreter (the agent's own PATH applies: ",
            ),
            (json!({"command": ["x"], "environment": {"PATH": "/a:/b"}}), "(PATH is /a:/b)"),
            (json!({"command": ["/x"]}), "/x, or its interpreter (the guest has no such file; "),
        ] {
            let text = no_command(&body);
            assert!(text.starts_with("Command not found: ") && text.contains(said), "{text}");
        }
    }

    #[test]
    fn returns_the_commands_exit_code_or_an_error() {
        let exit_code = |code, error: Option<&str>| {
            let code = Outcome { code, error: error.map(str::to_owned) }.exit_code();
            code.map_err(|error| error.to_string())
        };
        assert_eq!(exit_code(Some(0), None), Ok(0));
        assert_eq!(exit_code(Some(137), None), Ok(137));
        assert_eq!(exit_code(Some(-1), None), Ok(255));
        assert_eq!(exit_code(Some(127), Some("why")), Ok(127));
        assert_eq!(exit_code(Some(-1), Some("why")), Err("why".to_owned()));
        assert!(exit_code(None, None).is_err());
    }
}
