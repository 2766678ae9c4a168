//! `exec`: a command in the guest, with the sequence of calls and sockets that the servers' own client
//! has (P§4.1).
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

use super::operation::{self, Operation};
use super::output::{AllOutput, Cut};
use super::request::Exec;
use super::sockets::Sockets;
use super::terminal::Raw;
use super::wait::{self, Disconnected, Outcome};
use crate::agent::websocket::Incoming;
use crate::agent::{client, websocket};
use crate::common::printable::{self, complain};
use crate::daemon::known::{self, Known};
use crate::files::session;
use crate::instance::{Instance, vsock_device};
use crate::net::stream::Limit;

/// For a request.
const REQUEST: Duration = Duration::from_secs(20);
/// For the events' socket.
const LISTEN: Duration = Duration::from_secs(10);
/// After a failed operation, for what its sockets still hold.
const REST: Duration = Duration::from_secs(2);
/// After one that ended well its output does, too, unless the agent lies: so long nothing of it may come.
const STILL: Duration = Duration::from_secs(20);
/// For the daemon to hear of the end of the VM or of its agent.
const LEARNT: Duration = Duration::from_secs(1);
/// Between looks whether it has.
const LOST_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// What 126 means.
pub const NOT_EXECUTABLE: &str = "Command not executable";
/// Without it user, group and directory would be ignored (P§3.4).
const IDENTITY: &str = "container_exec_user_group_cwd";
/// What a caller gets who lost the guest.
const DISCONNECTED: u8 = 129;
/// The reason if nobody knows a better one.
const RESET: &str = "the guest has lost its connections, as after a suspend";
/// And who lost output of a command that ended with 0.
const INCOMPLETE: u8 = 1;

/// Runs a command; gives its exit code.
pub fn run(root: &Path, exec: &Exec) -> Result<u8> {
    let instance = known::reach(root, &exec.instance)?;
    knows_users(root, &instance, exec, Limit::within(REQUEST))?;
    let events = listen(root, &instance, Limit::within(LISTEN))?;
    let asked = Asked::new(root, &instance, exec, Limit::within(REQUEST))?;
    let ended = Running::start(root, &instance, exec, events, asked, None)?.end();
    let End { outcome, body, lost: output } = ended;
    output.iter().for_each(|why| complain(why));
    let code =
        exit_code(outcome, |why| lost(root, &instance, why), || not_found(root, &instance, &body))?;
    // What is not all there is no success.
    Ok(if output.is_empty() { code } else { code.max(INCOMPLETE) })
}

/// An error if the agent would ignore for whom and where the command is to run.
pub fn knows_users(root: &Path, instance: &Instance, exec: &Exec, limit: Limit) -> Result<()> {
    let extensions = client::greet(root, instance, limit)?;
    if exec.needs_identity() && !extensions.iter().any(|name| name == IDENTITY) {
        bail!("The server is missing the required \"{IDENTITY}\" API extension");
    }
    Ok(())
}

/// Listens to the agent's events, which tell of a command's end.
pub fn listen(root: &Path, instance: &Instance, limit: Limit) -> Result<Incoming> {
    let socket = websocket::connect_within(root, instance, "/1.0/events", limit);
    let mut events = socket.context("events")?.incoming;
    events.watch(instance, known::pauses(root, &instance.name));
    Ok(events)
}

/// A command that was asked for. Agents start it once they have its sockets.
pub struct Asked {
    body: Value,
    operation: Operation,
}

impl Asked {
    /// Asks for it.
    pub fn new(root: &Path, instance: &Instance, exec: &Exec, limit: Limit) -> Result<Self> {
        let body = exec.body(instance, exec.is_interactive());
        let operation = operation::start(root, instance, &body, limit)?;
        Ok(Self { body, operation })
    }
}

/// A command that was started.
pub struct Running<'a> {
    root: &'a Path,
    instance: &'a Instance,
    body: Value,
    id: String,
    events: Incoming,
    output: AllOutput,
    raw: Option<Raw>,
}

/// How it has ended.
pub struct End {
    /// Its exit code or signal, or why neither is known.
    pub outcome: Result<Outcome, Disconnected>,
    /// The request that it was started by.
    pub body: Value,
    /// Why output that it wrote is not all here; it may have several reasons.
    pub lost: Vec<String>,
}

impl<'a> Running<'a> {
    /// Starts it; its sockets are connected in that time, or the usual one.
    pub fn start(
        root: &'a Path,
        instance: &'a Instance,
        exec: &Exec,
        events: Incoming,
        Asked { body, operation }: Asked,
        limit: Option<Limit>,
    ) -> Result<Self> {
        let sockets = Sockets::connect(root, instance, &operation, exec, limit)?;
        let raw = if exec.is_interactive() { Raw::begin()? } else { None };
        let output = sockets.serve(exec)?;
        Ok(Self { root, instance, body, id: operation.id, events, output, raw })
    }

    /// Waits for its end and for its output's.
    pub fn end(mut self) -> End {
        let ended = wait::wait(self.root, self.instance, &self.id, &mut self.events);
        let is_reset = ended.as_ref().is_ok_and(|(_, is_reset)| *is_reset);
        let outcome = ended.map(|(outcome, _)| outcome);
        let cuts = match &outcome {
            // The guest has lost the other connections as well, and nothing arrives on them to have it say so.
            Ok(Outcome { error: None, .. }) if is_reset => self.output.wait_while_it_flows(REST),
            Ok(Outcome { error: None, .. }) => self.output.wait_while_it_flows(STILL),
            Ok(Outcome { error: Some(_), .. }) => self.output.wait(REST),
            Err(Disconnected(_)) => Vec::new(),
        };
        drop(self.raw);
        let mut lost = Vec::new();
        if let Ok(Outcome { error: None, .. }) = &outcome {
            for cut in cuts {
                match cut {
                    Cut::Lost(why) => lost.push(why),
                    Cut::Open(_) if is_reset => {
                        lost.push(format!("{RESET}; output may be missing"))
                    }
                    Cut::Open(why) => complain(why),
                }
            }
        }
        End { outcome, body: self.body, lost }
    }
}

/// What is said of a guest that was lost, with the reason if the daemon learns one within [`LEARNT`].
fn lost(root: &Path, instance: &Instance, why: &str) -> String {
    if !why.is_empty() {
        return format!("Disconnected: {why}");
    }
    if let Some(why) = vsock_device::why_stopped(instance) {
        return format!("Disconnected: {why}");
    }
    let until = Instant::now() + LEARNT;
    loop {
        match known::known(root, &instance.name) {
            Ok((_, Known::Absent(why) | Known::State(_, why))) if !why.is_empty() => {
                return format!("Disconnected: {why}");
            }
            Ok((_, Known::Reachable)) if Instant::now() < until => sleep(LOST_LOOK_INTERVAL),
            _ => return format!("Disconnected: {RESET}"),
        }
    }
}

/// What 127 means: agents give it for a missing command and for a missing directory alike (P§4.1).
/// Which of them it was is seen by a look at the directory, if the guest lets us look.
pub fn not_found(root: &Path, instance: &Instance, body: &Value) -> String {
    let cwd = body["cwd"].as_str().unwrap_or_default();
    if !cwd.is_empty() && session::is_no_directory(root, instance, Path::new(cwd)) {
        return format!("there is no directory {} in the guest to run it in", printable::name(cwd));
    }
    no_command(body)
}

/// A shell ends with the same code for what it was told to run.
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

/// What a real client makes of the end.
pub fn exit_code(
    outcome: Result<Outcome, Disconnected>,
    lost: impl FnOnce(&str) -> String,
    not_found: impl FnOnce() -> String,
) -> Result<u8> {
    let say = |text: &str, code| {
        complain(text);
        Ok(code)
    };
    match outcome {
        Err(Disconnected(why)) => say(&lost(&why), DISCONNECTED),
        Ok(Outcome { code: Some(127), .. }) => say(&not_found(), 127),
        Ok(Outcome { code: Some(126), .. }) => say(NOT_EXECUTABLE, 126),
        Ok(Outcome { error: Some(error), .. }) => bail!("{error}"),
        // As `exit` does with what is more than a byte: -1 is 255.
        Ok(Outcome { code: Some(code), error: None }) => Ok(u8::try_from(code & 0xff)?),
        Ok(Outcome { code: None, error: None }) => bail!("the operation says no exit code"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_missing_command_is_named_with_where_it_was_looked_for() {
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
    fn exit_codes_are_the_commands_or_say_what_went_wrong() {
        let exit_code = |outcome| {
            exit_code(outcome, |_| "Disconnected".to_owned(), || "nothing there".to_owned())
        };
        let ended = |code: i64| Ok(Outcome { code: Some(code), error: None });
        assert_eq!(exit_code(ended(0)).unwrap(), 0);
        assert_eq!(exit_code(ended(137)).unwrap(), 137);
        assert_eq!(exit_code(ended(-1)).unwrap(), 255);
        let failed = |code: i64| Ok(Outcome { code: Some(code), error: Some("why".into()) });
        assert_eq!(exit_code(failed(127)).unwrap(), 127);
        assert_eq!(exit_code(failed(126)).unwrap(), 126);
        assert_eq!(exit_code(failed(-1)).unwrap_err().to_string(), "why");
        assert_eq!(exit_code(Err(Disconnected(String::new()))).unwrap(), 129);
        assert!(exit_code(Ok(Outcome { code: None, error: None })).is_err());
    }
}
