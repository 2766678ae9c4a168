//! `exec`: a command in the guest, with the same calls and sockets as the servers' own client (P§4.1).
//!
//! ```text
//! GET /1.0 → events → POST exec → sockets: control, 0, 1, 2 (or control, 0)
//! stdin ─▶ 0 ─▶ barrier     1, 2 ─▶ stdout, stderr until barrier     signals, sizes ─▶ control
//! all output done: goodbye on control     operation ended: exit with its `return`
//! ```

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::output::AllOutput;
use super::request::Exec;
use super::sockets::Sockets;
use super::terminal::Raw;
use crate::agent::client::{Agent, complaint, connecting};
use crate::agent::websocket::{self, Incoming, Piece, Silent};
use crate::common::limits;
use crate::common::printable::{self, complain};
use crate::daemon::{self, Known};
use crate::files::session;
use crate::instance::vsock_device;
use crate::net::stream::Limit;

const REQUEST: Duration = Duration::from_secs(20);
/// How long to wait for output after a failed operation.
const REST: Duration = Duration::from_secs(2);
/// How long the output of a successful operation may pause. It always ends unless the agent is
/// faulty.
const STILL: Duration = Duration::from_secs(20);
/// How long to wait until the daemon learns of the end of the VM or of its agent.
const LEARNT: Duration = Duration::from_secs(1);
/// Interval of the queries during that time.
const LOST_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The extension without which an agent ignores user, group and directory (P§3.4).
const IDENTITY: &str = "container_exec_user_group_cwd";
/// Exit code if the connection to the guest is lost.
const DISCONNECTED: u8 = 129;
/// The reason if no better one is known.
const RESET: &str = "the guest has lost its connections, as after a suspend";
/// Exit code if output was lost of a command that exited 0.
const INCOMPLETE: u8 = 1;

pub fn run(root: &Path, exec: &Exec) -> Result<u8> {
    let agent = daemon::reach(root, &exec.name)?;
    knows_users(&agent, exec, Limit::within(REQUEST))?;
    let events = listen(&agent, connecting())?;
    let asked = Asked::new(&agent, exec, Limit::within(REQUEST))?;
    let End { outcome, body, lost: output } =
        Running::start(&agent, exec, events, asked, connecting())?.end();
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

/// Returns an error if the agent would ignore user, group or directory.
pub fn knows_users(agent: &Agent, exec: &Exec, limit: Limit) -> Result<()> {
    let extensions = agent.greet(limit)?;
    if exec.needs_identity() && !extensions.iter().any(|name| name == IDENTITY) {
        bail!("The server is missing the required \"{IDENTITY}\" API extension");
    }
    Ok(())
}

/// Connects to the agent's events, which report a command's end.
pub fn listen(agent: &Agent, limit: Limit) -> Result<Incoming> {
    let mut events = websocket::connect(agent, "/1.0/events", limit).context("events")?.incoming;
    events.watch(&agent.instance, daemon::pauses(agent));
    Ok(events)
}

/// A command that the agent has accepted. It starts the command once its sockets are connected.
pub struct Asked {
    body: Value,
    pub(super) id: String,
    /// Secrets by the names of the sockets.
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
        let id = operation["id"].as_str().context("an operation without an id")?.to_owned();
        let path = format!("/1.0/operations/{id}");
        if envelope["type"] != "async" || envelope["operation"] != path.as_str() {
            bail!("not an operation's envelope: {envelope}");
        }
        if answer.header("location") != Some(path.as_str()) {
            bail!("Location is {:?}, not {path}", answer.header("location"));
        }
        Ok(Self { body, id, fds: operation["metadata"]["fds"].clone() })
    }
}

pub struct Running<'a> {
    agent: &'a Agent,
    asked: Asked,
    events: Incoming,
    output: AllOutput,
    raw: Option<Raw>,
}

pub struct End {
    /// Its exit code or signal; or, if neither is known, the reason if that is (exit code 129).
    pub outcome: Result<Outcome, String>,
    pub body: Value,
    /// Reasons why part of its output was lost.
    pub lost: Vec<String>,
}

impl<'a> Running<'a> {
    /// Connects the sockets within `limit`, which starts the command.
    pub fn start(
        agent: &'a Agent,
        exec: &Exec,
        events: Incoming,
        asked: Asked,
        limit: Limit,
    ) -> Result<Self> {
        let sockets = Sockets::connect(agent, &asked, exec, limit)?;
        let raw = if exec.is_interactive() { Raw::begin()? } else { None };
        let output = sockets.serve(exec)?;
        Ok(Self { agent, asked, events, output, raw })
    }

    pub fn end(mut self) -> End {
        let ended = wait(self.agent, &self.asked.id, &mut self.events);
        let is_reset = ended.as_ref().is_ok_and(|(_, is_reset)| *is_reset);
        let outcome = ended.map(|(outcome, _)| outcome);
        let (mut lost, mut is_open) = (Vec::new(), false);
        match &outcome {
            Ok(Outcome { error: None, .. }) => {
                // The guest has lost the other connections too, and nothing arrives on them that
                // would show it.
                let still = if is_reset { REST } else { STILL };
                (lost, is_open) = self.output.wait_while_it_flows(still);
            }
            Ok(Outcome { error: Some(_), .. }) => self.output.wait(REST),
            Err(_) => {}
        }
        drop(self.raw);
        if is_open && is_reset {
            lost.push(format!("{RESET}; output may be missing"));
        } else if is_open {
            complain(
                "the command has ended, but another process still has its output open: gave up",
            );
        }
        End { outcome, body: self.asked.body, lost }
    }
}

/// Returns why a guest was lost, also if the daemon learns that within [`LEARNT`].
fn lost(agent: &Agent, why: String) -> String {
    if !why.is_empty() {
        return why;
    }
    if let Some(why) = vsock_device::why_stopped(&agent.instance) {
        return why;
    }
    let until = Instant::now() + LEARNT;
    loop {
        match daemon::known(&agent.root, &agent.instance.name) {
            Ok((_, Known::Absent(why) | Known::State(_, why))) if !why.is_empty() => return why,
            Ok((_, Known::Reachable)) if Instant::now() < until => sleep(LOST_LOOK_INTERVAL),
            _ => return RESET.to_owned(),
        }
    }
}

/// Returns the message for a code with which agents report that a command cannot be run. 127 may
/// mean a missing command or directory (P§4.1), so the guest is asked for the directory.
pub fn cannot_run(agent: &Agent, code: u8, body: &Value) -> Option<String> {
    match code {
        126 => Some("Command not executable".to_owned()),
        127 => Some(not_found(agent, body)),
        _ => None,
    }
}

fn not_found(agent: &Agent, body: &Value) -> String {
    let cwd = body["cwd"].as_str().unwrap_or_default();
    if !cwd.is_empty() && session::is_no_directory(agent, Path::new(cwd)) {
        return format!("the guest has no directory {} for the command", printable::name(cwd));
    }
    no_command(body)
}

/// Returns the message for a missing command. A shell exits 127 as well if it does not find one.
fn no_command(body: &Value) -> String {
    let command = body["command"][0].as_str().unwrap_or_default();
    let where_to = match (command.contains('/'), body["environment"]["PATH"].as_str()) {
        (true, _) => {
            "the guest has no such file; without a slash it is looked for in PATH".to_owned()
        }
        (false, Some(path)) => format!("PATH is {}", printable::name(path)),
        (false, None) => {
            "PATH is the agent's own: give the whole path, or -e PATH=DIR:DIR".to_owned()
        }
    };
    format!("Command not found: {}, or what it runs ({where_to})", printable::name(command))
}

/// Limit for a query of the operation.
const OPERATION_LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Statuses from here on are final.
const FINAL: u64 = 200;
const SUCCESS: u64 = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `metadata.return`.
    pub code: Option<i64>,
    pub error: Option<String>,
}

impl Outcome {
    /// Returns the exit code that a real client returns.
    pub fn exit_code(&self) -> Result<u8> {
        match (self.code, &self.error) {
            (Some(126), _) => Ok(126),
            (Some(127), _) => Ok(127),
            (_, Some(error)) => bail!("{error}"),
            // Truncated to a byte as `exit` does: -1 is 255.
            (Some(code), None) => Ok(u8::try_from(code & 0xff)?),
            (None, None) => bail!("the operation has no exit code"),
        }
    }
}

/// Waits for the end of `id`, which `events` report. Also returns whether that connection was lost.
fn wait(agent: &Agent, id: &str, events: &mut Incoming) -> Result<(Outcome, bool), String> {
    // It may have ended before the events were connected.
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
    let status = operation["status_code"].as_u64().context("an operation without a status")?;
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
                "x\\x1b, or what it runs (PATH is the agent's own: ",
            ),
            (json!({"command": ["x"], "environment": {"PATH": "/a:/b"}}), "(PATH is /a:/b)"),
            (json!({"command": ["/x"]}), "/x, or what it runs (the guest has no such file; "),
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
