//! What the devlxd API says (P§5.3), as data: request in, answer out.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::http::Message;
use crate::instance::{Flavour, Instance, READY};

/// An answer, before it is wrapped.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// Metadata, and an `ETag`.
    Data(Value, Option<String>),
    /// Status and text.
    Error(u16, String),
    /// An image of so many bytes.
    Image(u64),
}

fn data(value: Value) -> Answer {
    Answer::Data(value, None)
}

fn error(code: u16, text: &str) -> Answer {
    Answer::Error(code, text.to_owned())
}

/// Answers a request of a guest that proved who it is.
pub(crate) fn answer(daemon: &Arc<Daemon>, name: &str, request: &Message) -> Result<Answer> {
    let instance = daemon.with(name, |live| live.instance.clone())?;
    let segments: Vec<String> =
        request.path().split('/').skip(1).filter(|part| !part.is_empty()).map(decode).collect();
    let path: Vec<&str> = segments.iter().map(String::as_str).collect();
    let info = path.as_slice() == ["1.0"] && request.method == "GET";
    // P§5.3: only current LXD gates GET /1.0 too.
    let ungated = info && instance.flavour != Flavour::Lxd;
    if !instance.allows_guests() && !ungated {
        let text = if instance.flavour == Flavour::Lxd { "Forbidden" } else { "not authorized" };
        return Ok(error(403, text));
    }
    Ok(match (request.method.as_str(), path.as_slice()) {
        ("GET", []) => data(json!(["/1.0"])),
        ("GET", ["1.0"]) => data(self::info(&instance, request)),
        ("PATCH", ["1.0"]) => set_state(daemon, &instance, request)?,
        ("GET", ["1.0", "config"]) => data(config_keys(&instance)),
        ("GET", ["1.0", "config", key]) => config_value(&instance, key),
        ("GET", ["1.0", "meta-data"]) => data(json!(meta_data(&instance))),
        ("GET", ["1.0", "devices"]) => data(json!(instance.devices)),
        ("GET", ["1.0", "images", _, "export"]) => image(&instance),
        _ if instance.flavour != Flavour::Lxd => error(404, "not found"),
        ("GET", ["1.0", "ubuntu-pro"]) => {
            let attach =
                instance.config.get("ubuntu_pro.guest_attach").map_or("off", String::as_str);
            data(json!({"guest_attach": attach}))
        }
        ("POST", ["1.0", "ubuntu-pro", "token"]) => pro_token(&instance),
        (_, ["1.0", "instances" | "storage-pools" | "operations", ..]) => {
            managed(daemon, &instance, request, &path)?
        }
        _ => error(404, ""),
    })
}

fn decode(segment: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let hex: Vec<u8> = bytes.by_ref().take(2).collect();
        let hex = String::from_utf8_lossy(&hex).into_owned();
        out.extend(u8::from_str_radix(&hex, 16));
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_trusted(instance: &Instance, request: &Message) -> bool {
    let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    token.is_some() && token == instance.config.get("mote.bearer").map(String::as_str)
}

fn info(instance: &Instance, request: &Message) -> Value {
    let state = if instance.is_ready() { "Ready" } else { "Started" };
    let state = if instance.flavour == Flavour::LxdOld { "" } else { state };
    let mut info = json!({"api_version": "1.0", "instance_type": "virtual-machine",
        "location": "mote-host", "state": state});
    if instance.flavour == Flavour::Lxd {
        let trusted = is_trusted(instance, request);
        info["auth"] = json!(if trusted { "trusted" } else { "untrusted" });
        info["environment"] = json!({"server_clustered": false});
        info["supported_storage_drivers"] = json!([]);
    }
    info
}

fn set_state(daemon: &Arc<Daemon>, instance: &Instance, request: &Message) -> Result<Answer> {
    if instance.flavour == Flavour::LxdOld {
        return Ok(data(info(instance, request)));
    }
    let Ok(body) = request.json() else { return Ok(error(400, "Invalid JSON")) };
    let state = body["state"].as_str().unwrap_or_default();
    let ready = match state {
        "Ready" => true,
        "Started" => false,
        other => return Ok(Answer::Error(400, format!("Invalid state {other:?}"))),
    };
    daemon.change(&instance.name, |instance| {
        instance.config.insert(READY.into(), ready.to_string());
    })?;
    if ready {
        daemon.event(&instance.name, "instance-ready");
    }
    Ok(data(json!("")))
}

fn is_guests(key: &str) -> bool {
    key.starts_with("user.") || key.starts_with("cloud-init.")
}

fn config_keys(instance: &Instance) -> Value {
    instance
        .config
        .keys()
        .filter(|key| is_guests(key))
        .map(|key| format!("/1.0/config/{key}"))
        .collect()
}

fn config_value(instance: &Instance, key: &str) -> Answer {
    let lxd = instance.flavour == Flavour::Lxd;
    if !is_guests(key) {
        return error(403, if lxd { "Forbidden" } else { "not authorized" });
    }
    match instance.config.get(key) {
        Some(value) if !value.is_empty() => data(json!(value)),
        _ => error(404, if lxd { "Not Found" } else { "not found" }),
    }
}

fn meta_data(instance: &Instance) -> String {
    let head = if instance.flavour == Flavour::Lxd { "" } else { "#cloud-config\n" };
    let user = instance.config.get("user.meta-data").map_or("", String::as_str);
    let name = &instance.name;
    format!("{head}instance-id: {name}-0001\nlocal-hostname: {name}\n{user}")
}

fn image(instance: &Instance) -> Answer {
    if instance.config.get("security.devlxd.images").is_none_or(|value| value != "true") {
        return error(403, "Forbidden");
    }
    let size = instance.config.get("mote.image.size").and_then(|size| size.parse().ok());
    Answer::Image(size.unwrap_or(1024 * 1024))
}

fn pro_token(instance: &Instance) -> Answer {
    match instance.config.get("ubuntu_pro.guest_attach").map(String::as_str) {
        Some("on" | "available") => {
            data(json!({"expires": "2030-01-01T00:00:00Z", "guest_token": "token", "id": "id"}))
        }
        _ => error(403, "Failed getting an Ubuntu Pro guest token: Guest attachment not allowed"),
    }
}

/// Storage, instances and operations: for an identity with a token only (P§5.3).
fn managed(
    daemon: &Arc<Daemon>,
    instance: &Instance,
    request: &Message,
    path: &[&str],
) -> Result<Answer> {
    let allowed = instance.config.get("security.devlxd.management.volumes");
    if allowed.is_none_or(|value| value != "true") {
        return Ok(error(403, "Forbidden"));
    }
    if !is_trusted(instance, request) {
        return Ok(error(403, "You must be authenticated"));
    }
    let operation = data(json!({"id": "1", "status": "Success", "status_code": 200, "err": ""}));
    Ok(match (request.method.as_str(), path) {
        ("GET", ["1.0", "operations", _, "wait"]) => {
            let timeout = request.target.split("timeout=").nth(1).map(str::parse::<i64>);
            if timeout.is_some_and(|timeout| timeout.is_err()) {
                return Ok(error(400, "Invalid timeout value"));
            }
            operation
        }
        ("DELETE", ["1.0", "operations", _]) => operation,
        ("GET", ["1.0", "instances", name]) if *name == instance.name => {
            let value = json!({"name": name, "devices": instance.devices});
            let tag = etag(&value);
            Answer::Data(value, Some(tag))
        }
        ("PATCH", ["1.0", "instances", name]) if *name == instance.name => {
            patch_instance(daemon, instance, request)?
        }
        ("GET", ["1.0", "storage-pools", pool]) => {
            data(json!({"name": pool, "driver": "dir", "status": "Created"}))
        }
        (_, ["1.0", "storage-pools", _, "volumes", ..]) => {
            volumes(daemon, instance, request, path, operation)?
        }
        _ => error(404, ""),
    })
}

fn etag(value: &Value) -> String {
    let digest = digest(&SHA256, value.to_string().as_bytes());
    digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn patch_instance(daemon: &Arc<Daemon>, instance: &Instance, request: &Message) -> Result<Answer> {
    let current = json!({"name": instance.name, "devices": instance.devices});
    if request.header("if-match").is_some_and(|tag| tag.trim_matches('"') != etag(&current)) {
        return Ok(error(412, "ETag doesn't match"));
    }
    let Ok(body) = request.json() else { return Ok(error(400, "Invalid JSON")) };
    let devices = body["devices"].as_object().cloned().unwrap_or_default();
    daemon.change(&instance.name, |instance| {
        for (name, device) in devices {
            let device: Option<BTreeMap<String, String>> = serde_json::from_value(device).ok();
            match device {
                Some(device) => drop(instance.devices.insert(name, device)),
                // null takes a device away.
                None => drop(instance.devices.remove(&name)),
            }
        }
    })?;
    Ok(data(json!("")))
}

/// Volumes and snapshots, kept under their own paths.
fn volumes(
    daemon: &Arc<Daemon>,
    instance: &Instance,
    request: &Message,
    path: &[&str],
    operation: Answer,
) -> Result<Answer> {
    let key = path.join("/");
    let is_list = matches!(path.len(), 4 | 5 | 7);
    let found = instance.volumes.get(&key).cloned();
    Ok(match (request.method.as_str(), is_list) {
        ("GET", true) => {
            let depth = if path.len() == 4 { 6 } else { path.len() + 1 };
            let below = |known: &&String| {
                known.starts_with(&format!("{key}/")) && known.split('/').count() == depth
            };
            let all: Vec<_> = instance
                .volumes
                .keys()
                .filter(below)
                .map(|known| &instance.volumes[known])
                .collect();
            data(json!(all))
        }
        ("POST", true) => {
            let Ok(body) = request.json() else { return Ok(error(400, "Invalid JSON")) };
            let (Some(name), kind) = (body["name"].as_str(), body["type"].as_str()) else {
                return Ok(error(400, "No name provided"));
            };
            let key = match (path.len(), kind) {
                (4, Some(kind)) => format!("{key}/{kind}/{name}"),
                (4, None) => return Ok(error(400, "No type provided")),
                _ => format!("{key}/{name}"),
            };
            let body = body.clone();
            daemon.change(&instance.name, |instance| instance.volumes.insert(key, body))?;
            operation
        }
        (_, false) if found.is_none() => error(404, "Storage volume not found"),
        ("GET", false) => {
            let value = found.unwrap_or_default();
            let tag = etag(&value);
            Answer::Data(value, Some(tag))
        }
        ("PATCH" | "PUT", false) => {
            let Ok(body) = request.json() else { return Ok(error(400, "Invalid JSON")) };
            daemon.change(&instance.name, |instance| {
                let known = instance.volumes.get_mut(&key).and_then(Value::as_object_mut);
                if let (Some(known), Some(body)) = (known, body.as_object()) {
                    known.extend(body.clone());
                }
            })?;
            operation
        }
        ("DELETE", false) => {
            daemon.change(&instance.name, |instance| instance.volumes.remove(&key))?;
            operation
        }
        _ => error(501, ""),
    })
}
