//! Waits for an operation's end as real hosts do: with the agent's events, and with a query in case
//! an event came too early or is lost (P§4.1).

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::agent::client::Agent;
use crate::agent::websocket::{Incoming, Piece, Silent};
use crate::common::json;
use crate::net::stream::Limit;

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

/// The operation's end is unknown, with the reason if it is known; the exit code is 129.
#[derive(Debug)]
pub struct Disconnected(pub String);

/// Waits for the end of `id`, which `events` report. Also returns whether that connection was lost.
pub fn wait(
    agent: &Agent,
    id: &str,
    events: &mut Incoming,
) -> Result<(Outcome, bool), Disconnected> {
    // It may have ended before the events were connected.
    if let Ok(Some(outcome)) = look(agent, id) {
        return Ok((outcome, false));
    }
    let is_lost = loop {
        match events.receive() {
            Ok(Piece::Text(text)) => {
                let Ok(event) = json::parse(text.as_bytes()) else { continue };
                let operation = &event["metadata"];
                if event["type"] != "operation" || operation["id"] != id {
                    continue;
                }
                match outcome(operation) {
                    Ok(Some(outcome)) => return Ok((outcome, false)),
                    Ok(None) => {}
                    Err(_) => return Err(Disconnected(String::new())),
                }
            }
            Ok(Piece::Bytes(_)) => {}
            Ok(Piece::Closed) => break false,
            Err(error) if error.is::<Silent>() => return Err(Disconnected(error.to_string())),
            Err(_) => break true,
        }
    };
    let outcome = look(agent, id).ok().flatten();
    Ok((outcome.ok_or_else(|| Disconnected(String::new()))?, is_lost))
}

fn look(agent: &Agent, id: &str) -> Result<Option<Outcome>> {
    let target = format!("/1.0/operations/{id}");
    let shown = agent.metadata("GET", &target, Limit::within(OPERATION_LOOK_TIMEOUT))?;
    if shown["id"] != id {
        bail!("asked for operation {id}, got {}", shown["id"]);
    }
    outcome(&shown)
}

/// Returns how it ended, if it has.
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
    use super::*;
    use serde_json::json;

    #[test]
    fn an_operation_has_ended_from_status_200_on() {
        assert_eq!(outcome(&json!({"status_code": 103, "metadata": {"return": 3}})).unwrap(), None);
        let ended = json!({"status_code": 200, "err": "", "metadata": {"return": 3}});
        assert_eq!(outcome(&ended).unwrap(), Some(Outcome { code: Some(3), error: None }));
        let failed = json!({"status_code": 400, "err": "why", "metadata": {"return": 127}});
        let expected = Outcome { code: Some(127), error: Some("why".into()) };
        assert_eq!(outcome(&failed).unwrap(), Some(expected));
        assert!(outcome(&json!({})).is_err());
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
