//! The daemon's control socket: HTTP and JSON, for the command line and for curl.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::agent_client;
use crate::daemon::{Daemon, now};
use crate::http::{read_answer, read_request, write_answer, write_request};

/// Where it is.
pub(crate) fn path(root: &Path) -> PathBuf {
    root.join("control.sock")
}

/// Serves for ever.
pub(crate) fn serve(daemon: &Arc<Daemon>) -> Result<()> {
    let path = path(&daemon.root);
    let _stale = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
    for stream in listener.incoming().flatten() {
        let daemon = daemon.clone();
        std::thread::spawn(move || {
            if let Err(error) = answer(&daemon, stream) {
                daemon.log(&format!("control: {error:#}"));
            }
        });
    }
    Ok(())
}

fn answer(daemon: &Arc<Daemon>, mut stream: UnixStream) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let Some(request) = read_request(&mut stream)? else { return Ok(()) };
    let body = if request.body.is_empty() { Value::Null } else { request.json()? };
    let path: Vec<&str> = request.path().split('/').skip(1).collect();
    if let ["1.0", "events", only @ ..] = path.as_slice() {
        return follow(daemon, stream, only.first().map(|name| (*name).to_owned()));
    }
    let result = match (request.method.as_str(), path.as_slice()) {
        ("GET", ["1.0", "instances"]) => Ok(json!(daemon.instances().keys().collect::<Vec<_>>())),
        ("GET", ["1.0", "instances", name]) => daemon.with(name, |live| json!(live.instance)),
        ("GET", ["1.0", "internal", name, "agent-state"]) => daemon.agent_state(name),
        ("PATCH", ["1.0", "instances", name, "config"]) => set(daemon, name, &body),
        ("PATCH", ["1.0", "instances", name, "devices"]) => device(daemon, name, &body),
        ("POST", ["1.0", "instances", name, "fault"]) => {
            let kind = body["kind"].as_str().unwrap_or("none").to_owned();
            let number = body["number"].as_u64().unwrap_or(0);
            let kind = if kind == "none" { String::new() } else { kind };
            daemon.with(name, |live| live.fault = (kind, number)).map(|()| Value::Null)
        }
        ("POST", ["1.0", "instances", name, "query"]) => query(daemon, name, &body),
        ("POST", ["1.0", "instances", name, "stop"]) => daemon.stopped(name).map(|()| Value::Null),
        _ => bail!("no such endpoint: {} {}", request.method, request.target),
    };
    let (status, value) = match result {
        Ok(value) => (200, value),
        Err(error) => (400, json!({"error": format!("{error:#}")})),
    };
    write_answer(&mut stream, status, "application/json", &[], format!("{value}\n").as_bytes())
}

fn follow(daemon: &Arc<Daemon>, mut stream: UnixStream, only: Option<String>) -> Result<()> {
    let events = daemon.follow(only);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")?;
    for event in events {
        stream.write_all(format!("{event}\n").as_bytes())?;
    }
    Ok(())
}

/// Changes configuration: `{"key": "value"}`, or null to unset. Guests hear of `user.*` (P§4.3), and
/// a switched devlxd means a new PUT (P§3.3).
fn set(daemon: &Arc<Daemon>, name: &str, body: &Value) -> Result<Value> {
    let changes = body.as_object().context("an object is needed")?.clone();
    let before = daemon.with(name, |live| live.instance.clone())?;
    daemon.change(name, |instance| {
        for (key, value) in &changes {
            match value.as_str() {
                Some(value) => drop(instance.config.insert(key.clone(), value.to_owned())),
                None => drop(instance.config.remove(key)),
            }
        }
    })?;
    let started = daemon.with(name, |live| live.started)?;
    let after = daemon.with(name, |live| live.instance.clone())?;
    if started && before.allows_guests() != after.allows_guests() {
        daemon.advertise(name);
    }
    for (key, value) in changes.iter().filter(|(key, _)| key.starts_with("user.") && started) {
        let old = before.config.get(key).map_or("", String::as_str);
        let metadata = json!({"key": key, "old_value": old, "value": value.as_str().unwrap_or("")});
        post(daemon, name, "config", &metadata);
    }
    Ok(Value::Null)
}

fn device(daemon: &Arc<Daemon>, name: &str, body: &Value) -> Result<Value> {
    let device = body["name"].as_str().context("no device name")?.to_owned();
    let config: Option<BTreeMap<String, String>> =
        serde_json::from_value(body["config"].clone()).ok();
    let action = if config.is_some() { "added" } else { "removed" };
    daemon.change(name, |instance| match config.clone() {
        Some(config) => drop(instance.devices.insert(device.clone(), config)),
        None => drop(instance.devices.remove(&device)),
    })?;
    let metadata = json!({"action": action, "name": device, "config": config.unwrap_or_default()});
    post(daemon, name, "device", &metadata);
    Ok(Value::Null)
}

fn post(daemon: &Arc<Daemon>, name: &str, kind: &str, metadata: &Value) {
    let event = json!({"type": kind, "timestamp": now(), "metadata": metadata}).to_string();
    let Ok(instance) = daemon.with(name, |live| live.instance.clone()) else { return };
    if let Err(error) = agent_client::post_event(&daemon.root, &instance, event.as_bytes()) {
        daemon.log(&format!("{name}: event not delivered: {error:#}"));
    }
}

/// Any request to the agent, for tests.
fn query(daemon: &Arc<Daemon>, name: &str, body: &Value) -> Result<Value> {
    let instance = daemon.with(name, |live| live.instance.clone())?;
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let end = Instant::now() + Duration::from_secs(10);
    let (method, target, body) = (text("method"), text("path"), text("body"));
    let root = &daemon.root;
    let answer = agent_client::request(root, &instance, &method, &target, body.as_bytes(), end)?;
    Ok(json!({"status": answer.status, "body": String::from_utf8_lossy(&answer.body)}))
}

/// Asks a running daemon.
pub(crate) fn ask(root: &Path, method: &str, target: &str, body: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(path(root)).context("no daemon is running")?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    write_request(&mut stream, method, target, body.as_bytes())?;
    let answer = read_answer(&mut stream)?;
    let value = answer.json()?;
    if answer.status != 200 {
        bail!("{}", value["error"].as_str().unwrap_or("refused"));
    }
    Ok(value)
}

/// Prints events until the daemon ends.
pub(crate) fn print_events(root: &Path, only: Option<&str>) -> Result<()> {
    let mut stream = UnixStream::connect(path(root)).context("no daemon is running")?;
    let target = only.map_or("/1.0/events".to_owned(), |only| format!("/1.0/events/{only}"));
    write_request(&mut stream, "GET", &target, b"")?;
    let mut text = String::new();
    let mut reader = std::io::BufReader::new(stream);
    let mut in_body = false;
    while std::io::BufRead::read_line(&mut reader, &mut text)? > 0 {
        if in_body {
            print!("{text}");
            std::io::stdout().flush()?;
        }
        in_body |= text == "\r\n";
        text.clear();
    }
    Ok(())
}
