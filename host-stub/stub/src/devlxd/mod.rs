//! The devlxd API (P§5.3) without I/O: request in, answer out.

pub mod server;

use std::sync::Arc;

use anyhow::Result;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use mote_client::instance::READY;
use mote_client::{Flavour, Instance, Message, clock, random};

/// Default size of an image, in bytes; `mote.image.size` changes it.
const IMAGE: u64 = 1024 * 1024;

/// Answers a request of a guest whose certificate is verified.
pub fn answer(daemon: &Arc<Daemon>, name: &str, request: &Message) -> Result<Answer> {
    let instance = daemon.instance(name)?;
    let flavour = instance.flavour;
    let segments = request.path().split('/').skip(1).filter(|part| !part.is_empty());
    let segments: Vec<_> =
        segments.map(|part| percent_decode_str(part).decode_utf8_lossy()).collect();
    let path: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    let is_info = path == ["1.0"];
    // P§5.3: only current LXD requires permission for GET /1.0 too.
    let is_open = !flavour.is_lxd() && is_info && request.method == "GET";
    if !(is_open || instance.allows_guests()) {
        return Ok(forbidden(flavour));
    }
    // Only current LXD checks the method of paths that have only one (P§5.2).
    let is_checked = flavour.is_lxd() || flavour == Flavour::Incus && is_info;
    let method = if is_checked { request.method.as_str() } else { "GET" };
    Ok(match (method, path.as_slice()) {
        ("PATCH", ["1.0"]) => set_state(daemon, &instance, request)?,
        ("POST", ["1.0", "ubuntu-pro", "token"]) if flavour.is_lxd() => pro_token(&instance),
        (_, ["1.0", "instances" | "storage-pools" | "operations", _, ..]) if flavour.is_lxd() => {
            managed(&instance, request)
        }
        (_, path) => match shown(&instance, path, request) {
            None => error(404, if flavour.is_lxd() { "" } else { "not found" }),
            Some(answer) if method == "GET" => answer,
            Some(_) if flavour == Flavour::Incus => {
                Answer::Error(400, format!("method {method:?} not allowed"))
            }
            Some(_) => error(501, ""),
        },
    })
}

/// Returns the answer to a GET; `None` if this server has no such path.
fn shown(instance: &Instance, path: &[&str], request: &Message) -> Option<Answer> {
    let is_lxd = instance.flavour.is_lxd();
    Some(match path {
        [] => data(json!(["/1.0"])),
        ["1.0"] => data(info(instance, request)),
        ["1.0", "config"] => data(config_keys(instance)),
        ["1.0", "config", key] => config_value(instance, key),
        ["1.0", "devices"] => data(json!(instance.shown_devices())),
        ["1.0", "images", _, "export"] => image(instance),
        ["1.0", "meta-data"] => data(json!(meta_data(instance))),
        ["1.0", "ubuntu-pro"] if is_lxd => data(json!({"guest_attach": guest_attach(instance)})),
        ["1.0", "ubuntu-pro", "token"] if is_lxd => error(501, ""),
        _ => return None,
    })
}

fn forbidden(flavour: Flavour) -> Answer {
    error(403, if flavour.is_lxd() { "Forbidden" } else { "not authorized" })
}

fn info(instance: &Instance, request: &Message) -> Value {
    let state = if instance.is_ready() { "Ready" } else { "Started" };
    let mut info = json!({"api_version": "1.0", "instance_type": "virtual-machine",
        "location": "mote-host", "state": state});
    match instance.flavour {
        Flavour::Incus => {}
        Flavour::LxdOld => {
            info["state"] = json!("");
            info["location"] = json!("none");
        }
        Flavour::Lxd | Flavour::LxdMicro => {
            let trusted = is_trusted(instance, request);
            let drivers = if instance.is_true(GATE) {
                json!([{"name": "dir", "remote": false}])
            } else {
                json!([])
            };
            info["auth"] = json!(if trusted { "trusted" } else { "untrusted" });
            // Every guest gets this; the agent must hide it from untrusted programs.
            info["environment"] = json!({"server_clustered": false});
            info["supported_storage_drivers"] = drivers;
        }
    }
    info
}

fn set_state(daemon: &Arc<Daemon>, instance: &Instance, request: &Message) -> Result<Answer> {
    let Ok(body) = request.json() else { return Ok(error(400, "Invalid JSON")) };
    let ready = match body["state"].as_str().unwrap_or_default() {
        "Ready" => true,
        "Started" => false,
        other => return Ok(Answer::Error(400, format!("Invalid state {other:?}"))),
    };
    daemon.change(&instance.name, |instance| {
        instance.config.insert(READY.into(), ready.to_string());
    })?;
    if ready {
        // The event is sent each time, even if the instance was ready before (P§6).
        daemon.event(&instance.name, "instance-ready");
    }
    Ok(data(json!("")))
}

fn is_guests(key: &str) -> bool {
    key.starts_with("user.") || key.starts_with("cloud-init.")
}

fn config_keys(instance: &Instance) -> Value {
    let keys = instance.config.keys().filter(|key| is_guests(key));
    keys.map(|key| format!("/1.0/config/{key}")).collect()
}

fn config_value(instance: &Instance, key: &str) -> Answer {
    if !is_guests(key) {
        return forbidden(instance.flavour);
    }
    match instance.config.get(key) {
        None if instance.flavour.is_lxd() => error(404, "Not Found"),
        None => error(404, "not found"),
        // LXD treats an empty value as missing.
        Some(value) if value.is_empty() && instance.flavour.is_lxd() => error(404, "Not Found"),
        Some(value) => data(json!(value)),
    }
}

fn meta_data(instance: &Instance) -> String {
    let head = if instance.flavour.is_lxd() { "" } else { "#cloud-config\n" };
    let user = instance.config.get("user.meta-data").map_or("", String::as_str);
    let name = &instance.name;
    let made = format!("{name}-0001");
    let id = instance.config.get("volatile.cloud-init.instance-id").unwrap_or(&made);
    format!("{head}instance-id: {id}\nlocal-hostname: {name}\n{user}")
}

/// The key that permits requests about storage, instances and operations.
const GATE: &str = "security.devlxd.management.volumes";
const ETAG: &str = "\"1\"";

/// Answers requests about storage, instances and operations, for guests with a token only. There is
/// no storage, so the answer repeats the request.
fn managed(instance: &Instance, request: &Message) -> Answer {
    if !instance.is_true(GATE) {
        return error(403, "Forbidden");
    }
    if !is_trusted(instance, request) {
        return error(403, "You must be authenticated");
    }
    if request.header("if-match").is_some_and(|tag| tag.trim_matches('"') != ETAG.trim_matches('"'))
    {
        return error(412, "ETag doesn't match");
    }
    let body = request.json().unwrap_or_default();
    let seen = json!({"method": request.method, "target": request.target, "body": body});
    Answer::Data(seen, Some(ETAG))
}

fn image(instance: &Instance) -> Answer {
    if !instance.is_true(&format!("{}.images", instance.flavour.server().gate)) {
        return forbidden(instance.flavour);
    }
    let size = instance.config.get("mote.image.size").and_then(|size| size.parse().ok());
    Answer::Image(size.unwrap_or(IMAGE))
}

fn guest_attach(instance: &Instance) -> &str {
    instance.config.get("ubuntu_pro.guest_attach").map_or("off", String::as_str)
}

fn pro_token(instance: &Instance) -> Answer {
    match guest_attach(instance) {
        "on" | "available" => {
            let (token, id) = (random::uuid(), random::uuid());
            data(json!({"expires": clock::now(), "guest_token": token, "id": id}))
        }
        _ => error(403, "Failed getting an Ubuntu Pro guest token: Guest attachment not allowed"),
    }
}

/// The key with the token for storage, instances and operations.
const BEARER: &str = "mote.bearer";

/// An answer without its envelope.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// Metadata and an `ETag`.
    Data(Value, Option<&'static str>),
    /// Status and error text. An empty text stands for the status' reason phrase.
    Error(u16, String),
    /// An image of that many bytes.
    Image(u64),
}

pub fn data(value: Value) -> Answer {
    Answer::Data(value, None)
}

pub fn error(code: u16, text: &str) -> Answer {
    Answer::Error(code, text.to_owned())
}

pub fn is_trusted(instance: &Instance, request: &Message) -> bool {
    let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    token.is_some() && token == instance.config.get(BEARER).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_answers_in_its_own_way() {
        let config = [("mote.bearer", "t"), (GATE, "true"), ("user.empty", "")];
        let [lxd, old, incus] = [Flavour::Lxd, Flavour::LxdOld, Flavour::Incus]
            .map(|flavour| Instance::sample(flavour, &config));
        assert_eq!(config_value(&lxd, "user.empty"), error(404, "Not Found"));
        assert_eq!(config_value(&incus, "user.empty"), data(json!("")));
        let mut request = Message::default();
        request.headers.push(("authorization".into(), "Bearer t".into()));
        assert_eq!(info(&lxd, &request)["supported_storage_drivers"][0]["name"], "dir");
        let told = info(&old, &request);
        assert_eq!((&told["state"], &told["location"]), (&json!(""), &json!("none")));
        assert_eq!(info(&incus, &request).get("auth"), None);
        // Without a configured token, an empty one is not accepted.
        request.headers[0].1 = "Bearer ".into();
        assert!(!is_trusted(&Instance::sample(Flavour::Lxd, &[]), &request));
        assert!(shown(&incus, &["1.0", "ubuntu-pro"], &request).is_none());
        assert!(shown(&incus, &["1.0", "images", "f", "export"], &request).is_some());
        assert!(shown(&old, &["1.0", "storage-pools", "p"], &request).is_none());
    }
}
