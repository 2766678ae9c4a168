//! Storage volumes, snapshots, instances and operations of the devlxd API, for guests with a token
//! only (P§5.3). Requests are checked as by a real host, and answered without storage: a volume
//! exists if it is asked for, and an operation takes [`DURATION`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::api::{Answer, data, error, is_trusted};
use crate::daemon::Daemon;
use mote_client::instance::Instance;
use mote_client::net::http::Message;

/// The key that permits all of this.
pub const GATE: &str = "security.devlxd.management.volumes";
/// The id of every operation.
const OPERATION: &str = "5c0ffee0-0000-4000-8000-000000000001";
const DURATION: Duration = Duration::from_millis(100);

pub fn answer(
    daemon: &Arc<Daemon>,
    instance: &Instance,
    request: &Message,
    path: &[&str],
) -> Result<Answer> {
    if !instance.is_true(GATE) {
        return Ok(error(403, "Forbidden"));
    }
    if !is_trusted(instance, request) {
        return Ok(error(403, "You must be authenticated"));
    }
    Ok(match (request.method.as_str(), path) {
        ("GET", ["1.0", "operations", id, "wait"]) => wait(request, id),
        ("DELETE", ["1.0", "operations", OPERATION]) => operation("Cancelled", 401),
        ("DELETE", ["1.0", "operations", _]) => error(404, "Operation not found"),
        (method, ["1.0", "instances", name]) if *name == instance.name => match method {
            "GET" => tagged(shown(instance)),
            "PATCH" => patch_instance(daemon, instance, request)?,
            _ => error(501, ""),
        },
        ("GET", ["1.0", "storage-pools", pool]) => {
            data(json!({"name": pool, "driver": "dir", "status": "Created"}))
        }
        (method, ["1.0", "storage-pools", _, "volumes", rest @ ..]) => match (method, rest) {
            ("GET", [] | [_] | [_, _, "snapshots"]) => data(json!([])),
            ("POST", [] | [_] | [_, _, "snapshots"]) => new(request, rest),
            ("GET", [kind, name]) => tagged(json!({"name": name, "type": kind})),
            ("GET", [_, _, "snapshots", name]) => tagged(json!({"name": name})),
            ("PATCH" | "PUT", [kind, name]) => {
                change(request, &json!({"name": name, "type": kind}))
            }
            ("DELETE", [_, _] | [_, _, "snapshots", _]) => begin(),
            (_, [] | [_] | [_, _] | [_, _, "snapshots"] | [_, _, "snapshots", _]) => error(501, ""),
            _ => error(404, ""),
        },
        _ => error(404, ""),
    })
}

/// Returns a `DevLXDOperation` (P§5.3).
fn operation(status: &str, code: u16) -> Answer {
    data(json!({"id": OPERATION, "status": status, "status_code": code, "err": ""}))
}

/// Starts the operation of a change.
fn begin() -> Answer {
    operation("Running", 103)
}

fn wait(request: &Message, id: &str) -> Answer {
    let limit = match request.parameter("timeout").map(str::parse::<i64>) {
        Some(Err(_)) => return error(400, "Invalid timeout value"),
        Some(Ok(seconds)) => u64::try_from(seconds).map_or(DURATION, Duration::from_secs),
        None => DURATION,
    };
    if id != OPERATION {
        return error(404, "Operation not found");
    }
    std::thread::sleep(DURATION.min(limit));
    if DURATION > limit {
        return error(500, "context deadline exceeded");
    }
    operation("Success", 200)
}

/// Creates a volume or a snapshot.
fn new(request: &Message, rest: &[&str]) -> Answer {
    let Ok(body) = request.json() else { return error(400, "Invalid JSON") };
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    if !body["name"].as_str().is_some_and(is_name) {
        return error(400, "No name provided");
    }
    if rest.is_empty() && !body["type"].is_string() {
        return error(400, "No type provided");
    }
    begin()
}

fn change(request: &Message, current: &Value) -> Answer {
    if is_stale(request, current) {
        return stale();
    }
    match request.json() {
        Ok(body) if body.is_object() => begin(),
        Ok(_) | Err(_) => error(400, "Invalid JSON"),
    }
}

fn etag(value: &Value) -> String {
    let digest = digest(&SHA256, value.to_string().as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tagged(value: Value) -> Answer {
    let tag = etag(&value);
    Answer::Data(value, Some(tag))
}

/// Returns whether the guest's `ETag` is outdated.
fn is_stale(request: &Message, current: &Value) -> bool {
    let tag = request.header("if-match").map(|tag| tag.trim_matches('"'));
    tag.is_some_and(|tag| !tag.is_empty() && tag != etag(current))
}

fn stale() -> Answer {
    error(412, "ETag doesn't match")
}

fn shown(instance: &Instance) -> Value {
    json!({"name": instance.name, "devices": instance.shown_devices()})
}

fn patch_instance(daemon: &Arc<Daemon>, instance: &Instance, request: &Message) -> Result<Answer> {
    if is_stale(request, &shown(instance)) {
        return Ok(stale());
    }
    type Devices = BTreeMap<String, Option<BTreeMap<String, String>>>;
    let body = request.json().ok();
    let devices =
        body.and_then(|body| serde_json::from_value::<Devices>(body["devices"].clone()).ok());
    let Some(devices) = devices else { return Ok(error(400, "Invalid devices")) };
    daemon.change(&instance.name, |instance| {
        for (name, device) in devices {
            match device {
                Some(device) => drop(instance.devices.insert(name, device)),
                // null removes a device.
                None => drop(instance.devices.remove(&name)),
            }
        }
    })?;
    Ok(data(json!("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_different_tag_is_stale() {
        let value = json!({"a": 1});
        let with = |tag: &str| Message {
            headers: vec![("if-match".into(), tag.into())],
            ..Message::default()
        };
        assert!(!is_stale(&Message::default(), &value));
        assert!(!is_stale(&with(&format!("\"{}\"", etag(&value))), &value));
        assert!(is_stale(&with("\"x\""), &value));
    }
}
