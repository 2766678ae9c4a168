//! `exec`: a command in the guest, with the sequence of calls and sockets that the servers' own client
//! has (P§4.1).
//!
//! ```text
//! GET /1.0 → events → POST exec → sockets: control, 0, 1, 2 (or control, 0)
//! stdin ─▶ 0 ─▶ barrier     1, 2 ─▶ stdout, stderr until barrier     signals, sizes ─▶ control
//! all output done: goodbye on control     operation ended: exit with its `return`
//! ```

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::agent_client;
use crate::args::Args;
use crate::exec_request::Exec;
use crate::exec_sockets::Sockets;
use crate::exec_wait::{self, Disconnected, Outcome};
use crate::instance::Instance;
use crate::stream::Limit;
use crate::terminal::Raw;
use crate::websocket;

/// For each plain request.
const REQUEST: Duration = Duration::from_secs(20);
/// After a failed operation, for what its sockets still hold.
const REST: Duration = Duration::from_secs(2);
/// Without it user, group and directory would be ignored (P§3.4).
const IDENTITY: &str = "container_exec_user_group_cwd";
/// What a caller gets who lost the guest.
const DISCONNECTED: u8 = 129;

/// Runs a command; gives its exit code.
pub(crate) fn run(root: &Path, args: Args) -> Result<u8> {
    let exec = Exec::parse(args)?;
    let instance = agent_client::reach(root, &exec.instance)?;
    let extensions = agent_client::greet(root, &instance, Limit::within(REQUEST))?;
    if exec.needs_identity() && !extensions.iter().any(|name| name == IDENTITY) {
        bail!("The server is missing the required \"{IDENTITY}\" API extension");
    }
    let mut events = websocket::connect(root, &instance, "/1.0/events").context("events")?;
    let is_interactive = exec.is_interactive();
    let operation = start(root, &instance, &exec.body(&instance, is_interactive))?;
    let sockets = Sockets::connect(root, &instance, &operation, &exec)?;
    let raw = if is_interactive { Raw::begin()? } else { None };
    let all_output = sockets.serve(&exec)?;
    let outcome = exec_wait::wait(root, &instance, &operation.id, &mut events.incoming);
    let cuts = match &outcome {
        Ok(Outcome { error: None, .. }) => all_output.wait(None),
        Ok(Outcome { error: Some(_), .. }) => all_output.wait(Some(REST)),
        Err(Disconnected) => Vec::new(),
    };
    drop(raw);
    if let Ok(Outcome { error: None, .. }) = &outcome {
        cuts.iter().for_each(|cut| eprintln!("mote-host: {cut}"));
    }
    exit_code(outcome)
}

/// What a real client makes of the end.
fn exit_code(outcome: Result<Outcome, Disconnected>) -> Result<u8> {
    let say = |text: &str, code| {
        eprintln!("mote-host: {text}");
        Ok(code)
    };
    match outcome {
        Err(Disconnected) => say("Disconnected", DISCONNECTED),
        Ok(Outcome { code: Some(127), .. }) => say("Command not found", 127),
        Ok(Outcome { code: Some(126), .. }) => say("Command not executable", 126),
        Ok(Outcome { error: Some(error), .. }) => bail!("{error}"),
        // As `exit` does with what is more than a byte: -1 is 255.
        Ok(Outcome { code: Some(code), error: None }) => Ok(u8::try_from(code & 0xff)?),
        Ok(Outcome { code: None, error: None }) => bail!("the operation says no exit code"),
    }
}

/// A started operation.
pub(crate) struct Operation {
    /// Its id.
    pub(crate) id: String,
    /// Secrets by the names of the sockets.
    pub(crate) fds: Value,
}

fn start(root: &Path, instance: &Instance, body: &Value) -> Result<Operation> {
    let (body, limit) = (body.to_string(), Limit::within(REQUEST));
    let answer =
        agent_client::request(root, instance, "POST", "/1.0/exec", body.as_bytes(), limit)?;
    let envelope = answer.json().with_context(|| agent_client::complaint(&answer.body))?;
    if envelope["type"] == "error" || answer.status != 202 {
        bail!("{}", agent_client::complaint(&answer.body));
    }
    let id = envelope["metadata"]["id"].as_str().context("an operation without an id")?;
    let path = format!("/1.0/operations/{id}");
    if envelope["type"] != "async" || envelope["operation"] != path.as_str() {
        bail!("not an operation's envelope: {envelope}");
    }
    if answer.header("location") != Some(path.as_str()) {
        bail!("Location is {:?}, not {path}", answer.header("location"));
    }
    Ok(Operation { id: id.to_owned(), fds: envelope["metadata"]["metadata"]["fds"].clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_commands_or_say_what_went_wrong() {
        let ended = |code: i64| Ok(Outcome { code: Some(code), error: None });
        assert_eq!(exit_code(ended(0)).unwrap(), 0);
        assert_eq!(exit_code(ended(137)).unwrap(), 137);
        assert_eq!(exit_code(ended(-1)).unwrap(), 255);
        let failed = |code: i64| Ok(Outcome { code: Some(code), error: Some("why".into()) });
        assert_eq!(exit_code(failed(127)).unwrap(), 127);
        assert_eq!(exit_code(failed(126)).unwrap(), 126);
        assert_eq!(exit_code(failed(-1)).unwrap_err().to_string(), "why");
        assert_eq!(exit_code(Err(Disconnected)).unwrap(), 129);
        assert!(exit_code(Ok(Outcome { code: None, error: None })).is_err());
    }
}
