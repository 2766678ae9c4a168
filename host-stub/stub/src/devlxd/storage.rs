//! Storage volumes, snapshots, instances and operations of the devlxd API, for guests with a token
//! only (P§5.3). Volumes are kept with the instance that created them, under their API path.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::answer::{Answer, data, error, is_trusted};
use crate::daemon::Daemon;
use crate::daemon::operations::Refused;
use mote_client::instance::Instance;
use mote_client::net::http::Message;

/// The key that permits all of this.
pub const GATE: &str = "security.devlxd.management.volumes";

/// Answers a request.
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
        ("GET", ["1.0", "operations", id, "wait"]) => wait(daemon, instance, request, id),
        ("DELETE", ["1.0", "operations", id]) => {
            daemon.operations.cancel(&instance.name, id).map_or_else(refused, data)
        }
        (method, ["1.0", "instances", name]) if *name == instance.name => match method {
            "GET" => tagged(shown(instance)),
            "PATCH" => patch_instance(daemon, instance, request)?,
            _ => error(501, ""),
        },
        ("GET", ["1.0", "storage-pools", pool]) => {
            data(json!({"name": pool, "driver": "dir", "status": "Created"}))
        }
        (_, ["1.0", "storage-pools", _, "volumes", rest @ ..]) => match rest {
            [] | [_] | [_, _, "snapshots"] => list(daemon, instance, request, path)?,
            [_, _] | [_, _, "snapshots", _] => item(daemon, instance, request, path)?,
            _ => error(404, ""),
        },
        _ => error(404, ""),
    })
}

fn wait(daemon: &Daemon, instance: &Instance, request: &Message, id: &str) -> Answer {
    let limit = match request.parameter("timeout").map(str::parse::<i64>) {
        Some(Err(_)) => return error(400, "Invalid timeout value"),
        Some(Ok(seconds)) => u64::try_from(seconds).ok().map(Duration::from_secs),
        None => None,
    };
    daemon.operations.wait(&instance.name, id, limit).map_or_else(refused, data)
}

fn refused(why: Refused) -> Answer {
    match why {
        Refused::NotFound => error(404, "Operation not found"),
        Refused::NotRunning => error(400, "Only running operations can be cancelled"),
        Refused::TooLong => error(500, "context deadline exceeded"),
    }
}

/// Starts the operation of a change. The change itself is immediate; `mote.operation.ms` sets how
/// long the operation takes.
fn operation(daemon: &Daemon, instance: &Instance) -> Result<Answer> {
    let millis = instance.config.get("mote.operation.ms").and_then(|millis| millis.parse().ok());
    let time = Duration::from_millis(millis.unwrap_or(0));
    daemon.operations.begin(&instance.name, time).map(data)
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

/// Lists volumes or snapshots, or creates one.
fn list(
    daemon: &Arc<Daemon>,
    instance: &Instance,
    request: &Message,
    path: &[&str],
) -> Result<Answer> {
    let key = path.join("/");
    let is_snapshots = path.last() == Some(&"snapshots") && path.len() == 7;
    if is_snapshots && !instance.volumes.contains_key(&path[..6].join("/")) {
        return Ok(error(404, "Storage volume not found"));
    }
    match request.method.as_str() {
        "GET" => {
            // All types, or one.
            let depth = if path.len() == 4 { 6 } else { path.len() + 1 };
            let below = |known: &str| {
                known.starts_with(&format!("{key}/")) && known.split('/').count() == depth
            };
            let all = instance.volumes.iter().filter(|(known, _)| below(known));
            Ok(data(json!(all.map(|(_, volume)| volume).collect::<Vec<_>>())))
        }
        "POST" => {
            let Ok(body) = request.json() else { return Ok(error(400, "Invalid JSON")) };
            let Some(name) = body["name"].as_str().filter(|name| is_name(name)) else {
                return Ok(error(400, "No name provided"));
            };
            let key = match (path.len(), body["type"].as_str()) {
                (4, Some(kind)) => format!("{key}/{kind}/{name}"),
                (4, None) => return Ok(error(400, "No type provided")),
                _ => format!("{key}/{name}"),
            };
            if instance.volumes.contains_key(&key) {
                return Ok(error(409, "Volume by that name already exists"));
            }
            let body = body.clone();
            daemon.change(&instance.name, |instance| instance.volumes.insert(key, body))?;
            operation(daemon, instance)
        }
        _ => Ok(error(501, "")),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/')
}

/// Reads, changes or removes a volume or snapshot.
fn item(
    daemon: &Arc<Daemon>,
    instance: &Instance,
    request: &Message,
    path: &[&str],
) -> Result<Answer> {
    let key = path.join("/");
    let is_snapshot = path.len() == 8;
    let Some(found) = instance.volumes.get(&key) else {
        let what = if is_snapshot { "Storage volume snapshot" } else { "Storage volume" };
        return Ok(Answer::Error(404, format!("{what} not found")));
    };
    match (request.method.as_str(), is_snapshot) {
        ("GET", _) => Ok(tagged(found.clone())),
        ("PATCH" | "PUT", false) => {
            if is_stale(request, found) {
                return Ok(stale());
            }
            let body = request.json().ok().and_then(|body| body.as_object().cloned());
            let Some(body) = body else { return Ok(error(400, "Invalid JSON")) };
            let config = if request.method == "PATCH" { Config::Merge } else { Config::Replace };
            daemon.change(&instance.name, |instance| {
                let known = instance.volumes.get_mut(&key).and_then(Value::as_object_mut);
                if let Some(known) = known {
                    update(known, body, config);
                }
            })?;
            operation(daemon, instance)
        }
        ("DELETE", _) => {
            if is_stale(request, found) {
                return Ok(stale());
            }
            let below = format!("{key}/");
            daemon.change(&instance.name, |instance| {
                // Snapshots are removed with their volume.
                instance.volumes.retain(|known, _| *known != key && !known.starts_with(&below));
            })?;
            operation(daemon, instance)
        }
        _ => Ok(error(501, "")),
    }
}

/// What happens to configuration that a change does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Config {
    Merge,
    Replace,
}

fn update(known: &mut Map<String, Value>, body: Map<String, Value>, config: Config) {
    for (field, value) in body {
        match (field.as_str(), config, known.get_mut(&field), value) {
            ("config", Config::Merge, Some(Value::Object(old)), Value::Object(new)) => {
                old.extend(new);
            }
            (_, Config::Merge | Config::Replace, _, value) => drop(known.insert(field, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_patch_extends_and_a_put_replaces_the_configuration() {
        let known = json!({"name": "v", "config": {"size": "1", "a": "b"}});
        let body = json!({"description": "d", "config": {"size": "2"}});
        let mut patched = object(known.clone());
        update(&mut patched, object(body.clone()), Config::Merge);
        let wanted = json!({"name": "v", "description": "d", "config": {"size": "2", "a": "b"}});
        assert_eq!(Value::from(patched), wanted);
        let mut put = object(known);
        update(&mut put, object(body), Config::Replace);
        assert_eq!(Value::from(put)["config"], json!({"size": "2"}));
    }

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
