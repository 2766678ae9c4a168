//! The devlxd API (P§5.3) without I/O: request in, answer out.

pub mod server;

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use mote_client::common::{clock, random};
use mote_client::instance::{Flavour, Instance, READY};
use mote_client::net::http::Message;

/// Default size of an image, bytes; `mote.image.size` changes it.
const IMAGE: u64 = 1024 * 1024;

/// The resource of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'a> {
    ConfigKeys,
    ConfigValue(&'a str),
    Devices,
    Image,
    Index,
    Info,
    /// Storage, instances, operations.
    Managed,
    MetaData,
    Pro,
    ProToken,
}

fn place<'a>(flavour: Flavour, path: &[&'a str]) -> Option<Place<'a>> {
    let is_lxd = flavour == Flavour::Lxd;
    Some(match path {
        [] => Place::Index,
        ["1.0"] => Place::Info,
        ["1.0", "config"] => Place::ConfigKeys,
        ["1.0", "config", key] => Place::ConfigValue(key),
        ["1.0", "devices"] => Place::Devices,
        ["1.0", "images", _, "export"] => Place::Image,
        ["1.0", "meta-data"] => Place::MetaData,
        ["1.0", "ubuntu-pro"] if is_lxd => Place::Pro,
        ["1.0", "ubuntu-pro", "token"] if is_lxd => Place::ProToken,
        ["1.0", "instances" | "storage-pools" | "operations", _, ..] if is_lxd => Place::Managed,
        _ => return None,
    })
}

/// Answers a request of a guest whose certificate is verified.
pub fn answer(daemon: &Arc<Daemon>, name: &str, request: &Message) -> Result<Answer> {
    let instance = daemon.instance(name)?;
    let flavour = instance.flavour;
    let segments: Vec<String> =
        request.path().split('/').skip(1).filter(|part| !part.is_empty()).map(decode).collect();
    let path: Vec<&str> = segments.iter().map(String::as_str).collect();
    let place = place(flavour, &path);
    // P§5.3: only current LXD requires permission for GET /1.0 too.
    let is_open = flavour != Flavour::Lxd && place == Some(Place::Info) && request.method == "GET";
    if !(is_open || instance.allows_guests()) {
        return Ok(forbidden(flavour));
    }
    // Only current LXD checks the method where there is only one (P§5.2).
    let method = match (flavour, place) {
        (Flavour::Lxd, _) | (Flavour::Incus, Some(Place::Info)) => request.method.as_str(),
        (Flavour::Incus | Flavour::LxdOld, _) => "GET",
    };
    Ok(match (method, place) {
        ("GET", Some(Place::Index)) => data(json!(["/1.0"])),
        ("GET", Some(Place::Info)) => data(info(&instance, request)),
        ("PATCH", Some(Place::Info)) => set_state(daemon, &instance, request)?,
        ("GET", Some(Place::ConfigKeys)) => data(config_keys(&instance)),
        ("GET", Some(Place::ConfigValue(key))) => config_value(&instance, key),
        ("GET", Some(Place::MetaData)) => data(json!(meta_data(&instance))),
        ("GET", Some(Place::Devices)) => data(json!(instance.shown_devices())),
        ("GET", Some(Place::Image)) => image(&instance),
        ("GET", Some(Place::Pro)) => data(json!({"guest_attach": guest_attach(&instance)})),
        ("POST", Some(Place::ProToken)) => pro_token(&instance),
        (_, Some(Place::Managed)) => managed(&instance, request),
        (method, Some(Place::Info)) if flavour == Flavour::Incus => {
            Answer::Error(400, format!("method {method:?} not allowed"))
        }
        (_, Some(_)) => error(501, ""),
        (_, None) => error(404, if flavour == Flavour::Lxd { "" } else { "not found" }),
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

fn forbidden(flavour: Flavour) -> Answer {
    error(403, if flavour == Flavour::Lxd { "Forbidden" } else { "not authorized" })
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
        Flavour::Lxd => {
            let trusted = is_trusted(instance, request);
            let drivers = if instance.is_true(GATE) {
                json!([{"name": "dir", "remote": false}])
            } else {
                json!([])
            };
            info["auth"] = json!(if trusted { "trusted" } else { "untrusted" });
            // Sent to every guest; the agent must hide it from untrusted programs.
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
        // Each time, even if it was ready before (P§6).
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
    let value = instance.config.get(key).cloned();
    match (instance.flavour, value) {
        (Flavour::Lxd, None) => error(404, "Not Found"),
        // There, empty means missing.
        (Flavour::Lxd, Some(value)) if value.is_empty() => error(404, "Not Found"),
        (Flavour::Incus | Flavour::LxdOld, None) => error(404, "not found"),
        (Flavour::Incus | Flavour::Lxd | Flavour::LxdOld, Some(value)) => data(json!(value)),
    }
}

fn meta_data(instance: &Instance) -> String {
    let head = if instance.flavour == Flavour::Lxd { "" } else { "#cloud-config\n" };
    let user = instance.config.get("user.meta-data").map_or("", String::as_str);
    let name = &instance.name;
    let made = format!("{name}-0001");
    let id = instance.config.get("volatile.cloud-init.instance-id").unwrap_or(&made);
    format!("{head}instance-id: {id}\nlocal-hostname: {name}\n{user}")
}

/// The key that permits requests about storage, instances and operations.
const GATE: &str = "security.devlxd.management.volumes";
const ETAG: &str = "1";

/// Answers about storage, instances and operations, for guests with a token only: with the request
/// as it arrived, because there is no storage.
fn managed(instance: &Instance, request: &Message) -> Answer {
    if !instance.is_true(GATE) {
        return error(403, "Forbidden");
    }
    if !is_trusted(instance, request) {
        return error(403, "You must be authenticated");
    }
    if request.header("if-match").is_some_and(|tag| tag.trim_matches('"') != ETAG) {
        return error(412, "ETag doesn't match");
    }
    let body = request.json().unwrap_or_default();
    let seen = json!({"method": request.method, "target": request.target, "body": body});
    Answer::Data(seen, Some(ETAG.to_owned()))
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
    Data(Value, Option<String>),
    /// Status and text; without a text the status' own.
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

    fn get(target: &str) -> Message {
        Message { method: "GET".into(), target: target.into(), ..Message::default() }
    }

    #[test]
    fn each_server_uses_its_own_keys_and_texts() {
        let config = [("user.a", "1"), ("user.empty", ""), ("limits.cpu", "1")];
        let (lxd, incus) =
            (Instance::sample(Flavour::Lxd, &config), Instance::sample(Flavour::Incus, &config));
        assert_eq!(config_value(&lxd, "user.a"), data(json!("1")));
        assert_eq!(config_value(&lxd, "user.empty"), error(404, "Not Found"));
        assert_eq!(config_value(&incus, "user.empty"), data(json!("")));
        assert_eq!(config_value(&incus, "user.b"), error(404, "not found"));
        assert_eq!(config_value(&lxd, "limits.cpu"), error(403, "Forbidden"));
        assert_eq!(config_value(&incus, "limits.cpu"), error(403, "not authorized"));
    }

    #[test]
    fn the_info_matches_each_server() {
        let token = [("mote.bearer", "t"), ("security.devlxd.management.volumes", "true")];
        let mut request = get("/1.0");
        let lxd = Instance::sample(Flavour::Lxd, &token);
        assert_eq!(info(&lxd, &request)["auth"], "untrusted");
        request.headers.push(("authorization".into(), "Bearer t".into()));
        assert_eq!(info(&lxd, &request)["auth"], "trusted");
        assert_eq!(info(&lxd, &request)["supported_storage_drivers"][0]["name"], "dir");
        let old = info(&Instance::sample(Flavour::LxdOld, &[]), &request);
        assert_eq!((&old["state"], &old["location"]), (&json!(""), &json!("none")));
        let incus = info(&Instance::sample(Flavour::Incus, &[(READY, "true")]), &request);
        assert_eq!((&incus["state"], incus.get("auth")), (&json!("Ready"), None));
        // Without a configured token, an empty one is not accepted.
        request.headers[0].1 = "Bearer ".into();
        assert!(!is_trusted(&Instance::sample(Flavour::Lxd, &[]), &request));
    }

    #[test]
    fn each_server_has_its_own_paths() {
        let pro = ["1.0", "ubuntu-pro"];
        assert_eq!(place(Flavour::Lxd, &pro), Some(Place::Pro));
        assert_eq!(place(Flavour::Incus, &pro), None);
        assert_eq!(place(Flavour::LxdOld, &["1.0", "storage-pools", "p"]), None);
        assert_eq!(place(Flavour::Incus, &["1.0", "images", "f", "export"]), Some(Place::Image));
        assert_eq!(decode("a%2fb%C3%A9"), "a/b\u{e9}");
    }
}
