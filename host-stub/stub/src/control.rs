//! The daemon with the listeners for its guests, and the server of its control socket: HTTP and
//! JSON, for the command line and for curl.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::channel::{ring, serial};
use crate::daemon::diagnosis::diagnose;
use crate::daemon::fault::Fault;
use crate::daemon::{Daemon, Live};
use crate::devlxd::server::Doors;
use mote_client::common::clock::now;
use mote_client::daemon::path;
use mote_client::instance::{READY, share, vsock_device};
use mote_client::net::http::{read_request, write_answer};
use mote_client::net::slots::{AT_ONCE, Slots, accepted};
use mote_client::{
    Agent, CallFailure, Channel, FailedCall, Flavour, Instance, Limit, Message, Timed, limits,
    store,
};

pub struct Host {
    pub daemon: Arc<Daemon>,
    doors: Arc<Doors>,
}

impl Host {
    /// Starts to serve all instances of the directory.
    pub fn new(daemon: Arc<Daemon>) -> Result<Arc<Self>> {
        let host = Self { daemon, doors: Arc::default() };
        for name in store::names(&host.daemon.root) {
            host.take_up(store::load(&host.daemon.root, &name)?)?;
        }
        Ok(Arc::new(host))
    }

    pub fn take_up(&self, mut instance: Instance) -> Result<()> {
        let name = instance.name.clone();
        if self.daemon.instances().contains_key(&name) {
            bail!("{name} is already served");
        }
        if instance.config.remove(READY).is_some() {
            store::save(&self.daemon.root, &instance)?;
        }
        // A real host writes the share when a VM starts; a running VM keeps its share.
        if matches!(instance.channel, Channel::Qmp(_)) && !instance.is_running() {
            self.daemon.write_conf(&instance)?;
        }
        let live = Live::new(instance.clone());
        let life = Arc::downgrade(&live.life);
        self.daemon.instances().insert(name, live);
        self.doors.open(&self.daemon, &instance, &life)?;
        match instance.channel.clone() {
            Channel::Qmp(path) => ring::watch(&self.daemon, &instance, path, life),
            Channel::Serial { path, shared } => {
                serial::watch(&self.daemon, &instance.name, path, shared, life);
            }
        }
        Ok(())
    }

    /// Stops serving an instance and removes its files; a running one only with force.
    pub fn delete(&self, name: &str, force: bool) -> Result<()> {
        let mut all = self.daemon.instances();
        let live = all.get(name).with_context(|| format!("no instance is named {name}"))?;
        if !force && (live.instance.is_running() || live.called) {
            bail!("{name} is running; stop its VM first, or delete it with --force");
        }
        // As with lxc, end the VM. If its monitor serves another client, it continues to run.
        let ended = live.vm.order("quit");
        if let Err(error) = ended.and_then(|_| vsock_device::end(&self.daemon.root, &live.instance))
        {
            self.daemon.log(&format!("{name}: {error:#}"));
        }
        store::remove(&self.daemon.root, name)?;
        let instance = live.instance.clone();
        all.remove(name);
        drop(all);
        self.doors.close(&self.daemon, &instance);
        self.daemon.event(name, "instance-deleted");
        Ok(())
    }
}

const READ: Duration = Duration::from_secs(5);
const QUERY: Duration = Duration::from_secs(10);

/// Serves until the process ends. The caller holds the directory's lock, so an existing socket was
/// left by a dead daemon.
pub fn serve(host: &Arc<Host>) -> Result<()> {
    let path = path(&host.daemon.root);
    let _stale = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
    // Set the mode regardless of the umask.
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    host.daemon.bound(&path);
    let slots = Slots::new(AT_ONCE);
    for stream in accepted(listener.incoming()) {
        let host = host.clone();
        slots.serve(move || {
            if let Err(error) = answer(&host, stream) {
                host.daemon.log(&format!("control: {error:#}"));
            }
        });
    }
    Ok(())
}

fn answer(host: &Arc<Host>, stream: UnixStream) -> Result<()> {
    let mut stream = Timed::new(stream, Limit::within(READ));
    let Some(request) = read_request(&mut stream, limits::CONTROL)? else { return Ok(()) };
    stream.limit(Limit::Each(READ));
    let path: Vec<&str> = request.path().split('/').skip(1).collect();
    let (status, value) = match act(host, &request, &path) {
        Ok(Some(value)) => (200, value),
        Ok(None) => (404, json!({"error": "no such endpoint"})),
        Err(error) => (400, json!({"error": format!("{error:#}")})),
    };
    write_answer(&mut stream, status, "application/json", &[], format!("{value}\n").as_bytes())
}

fn act(host: &Arc<Host>, request: &Message, path: &[&str]) -> Result<Option<Value>> {
    let daemon = &host.daemon;
    let body = if request.body.is_empty() { Value::Null } else { request.json()? };
    Ok(Some(match (request.method.as_str(), path) {
        ("GET", ["1.0", "instances"]) => json!(daemon.instances().keys().collect::<Vec<_>>()),
        ("GET", ["1.0", "instances", name]) => json!(daemon.instance(name)?),
        ("GET", ["1.0", "internal", name, "agent"]) => daemon.with(name, |live| {
            // Without a status channel, an agent that has called is running. An agent that reports
            // its state through the status port has no vsock (P§2.4).
            let told = &live.agent.serial_state;
            let reachable = told.is_none() && (live.agent.started || live.called);
            let why = diagnose(live, None);
            json!({"instance": live.instance, "reachable": reachable, "state": told, "why": why})
        })?,
        ("GET", ["1.0", "internal", name, "agent-state"]) => {
            let failure = request
                .parameter("failure")
                .and_then(|name| CallFailure::from_str(name, true).ok());
            daemon.agent_state(name, failure)?
        }
        // () is null.
        ("PATCH", ["1.0", "instances", name, "config"]) => json!(set(daemon, name, &body)?),
        ("PATCH", ["1.0", "instances", name, "devices"]) => json!(device(daemon, name, &body)?),
        ("POST", ["1.0", "instances", name, "adopt"]) => {
            json!(host.take_up(store::load(&daemon.root, name)?)?)
        }
        ("POST", ["1.0", "instances", name, "fault"]) => {
            let kind = body["kind"].as_str().context("no kind")?;
            let fault = Fault::parse(kind, body["number"].as_u64())?;
            json!(daemon.with(name, |live| live.fault = fault)?)
        }
        ("POST", ["1.0", "instances", name, "delete"]) => {
            json!(host.delete(name, body["force"] == true)?)
        }
        ("POST", ["1.0", "instances", name, "query"]) => query(daemon, name, &body)?,
        ("POST", ["1.0", "instances", name, "start"]) => json!(start(daemon, name)?),
        ("POST", ["1.0", "instances", name, "stop"]) => stop(daemon, name, &body)?,
        _ => return Ok(None),
    }))
}

/// Changes configuration: `{"key": "value"}`, or null to unset. Switching devlxd sends a PUT before
/// the guest's calls see it (P§3.3), and fails without an agent. Guests get events for `user.*`
/// (P§4.3).
fn set(daemon: &Arc<Daemon>, name: &str, body: &Value) -> Result<()> {
    let changes = body.as_object().context("an object is needed")?;
    let before = daemon.instance(name)?;
    let mut after = before.clone();
    apply(&mut after, changes);
    if before.is_running() && before.allows_guests() != after.allows_guests() {
        if !daemon.with(name, |live| live.agent.started)? {
            bail!("Failed getting agent client handle: {}", after.flavour.server().absent);
        }
        daemon.advertise(&after)?;
    }
    daemon.change(name, |instance| apply(instance, changes))?;
    if matches!(after.channel, Channel::Serial { .. }) {
        // A restarted agent reads the switch only from this file.
        daemon.write_conf(&after)?;
    }
    daemon.event(name, "instance-updated");
    for (key, value) in changes.iter().filter(|(key, _)| key.starts_with("user.")) {
        let old = before.config.get(key).map_or("", String::as_str);
        let metadata = json!({"key": key, "old_value": old, "value": value.as_str().unwrap_or("")});
        tell_guest(daemon, name, "config", &metadata)?;
    }
    Ok(())
}

fn apply(instance: &mut Instance, changes: &Map<String, Value>) {
    for (key, value) in changes {
        match value.as_str() {
            Some(value) => drop(instance.config.insert(key.clone(), value.to_owned())),
            None => drop(instance.config.remove(key)),
        }
    }
}

fn device(daemon: &Arc<Daemon>, name: &str, body: &Value) -> Result<()> {
    let device = body["name"].as_str().context("no device name")?;
    let config: Option<BTreeMap<String, String>> =
        serde_json::from_value(body["config"].clone()).context("not a device")?;
    let (old, flavour) = daemon.change(name, |instance| {
        let old = match config.clone() {
            Some(config) => instance.devices.insert(device.to_owned(), config),
            None => instance.devices.remove(device),
        };
        (old, instance.flavour)
    })?;
    let action = match (&old, &config) {
        (None, None) => bail!("there is no device {device}"),
        (None, Some(_)) => "added",
        (Some(_), None) => "removed",
        (Some(_), Some(_)) => "updated",
    };
    daemon.event(name, "instance-updated");
    let shown = config.or(old).unwrap_or_default();
    let mut metadata = json!({"action": action, "name": device, "config": shown});
    if action == "added"
        && let Some(mount) = share::event_mount(flavour, device, &shown)
    {
        metadata["mount"] = mount;
    }
    let instance = daemon.instance(name)?;
    // LXD updates the files of a running VM, Incus writes them at its start (P§1.8).
    if flavour != Flavour::Incus || !instance.is_running() {
        share::write_devices(&daemon.root, &instance)?;
    }
    // A guest's refusal does not undo the change of the device (P§4.3).
    tell_guest(daemon, name, "device", &metadata)
}

/// Posts an event to the agent if there is one. A failed call is only logged.
///
/// # Errors
/// The agent's answer is an error, which a real host shows to its user.
fn tell_guest(daemon: &Arc<Daemon>, name: &str, kind: &str, metadata: &Value) -> Result<()> {
    let instance = daemon.with(name, |live| {
        // Without a status channel, an agent that has called is running.
        (live.agent.started || live.called).then(|| live.instance.clone())
    });
    let Ok(Some(instance)) = instance else { return Ok(()) };
    let event = json!({"type": kind, "timestamp": now(), "metadata": metadata}).to_string();
    let told = Agent::of(&daemon.root, &instance).tell("POST", "/1.0/events", event.as_bytes());
    let Err(error) = told else { return Ok(()) };
    let failure = FailedCall::cause(&error);
    daemon.failed(name, &format!("event not delivered: {error:#}"), failure);
    if failure.is_some() { Ok(()) } else { Err(error) }
}

/// Sends any request to the agent, for tests.
fn query(daemon: &Arc<Daemon>, name: &str, body: &Value) -> Result<Value> {
    let instance = daemon.instance(name)?;
    let text = |key: &str| body[key].as_str().unwrap_or_default();
    let (limit, content) = (Limit::within(QUERY), text("body").as_bytes());
    let agent = Agent::of(&daemon.root, &instance);
    let answer = agent.request(text("method"), text("path"), content, limit)?;
    Ok(json!({"status": answer.status, "body": String::from_utf8_lossy(&answer.body)}))
}

/// Writes the share again, because the VM is about to start (P§1.2).
fn start(daemon: &Arc<Daemon>, name: &str) -> Result<()> {
    let instance = daemon.instance(name)?;
    if !instance.is_running() {
        daemon.write_conf(&instance)?;
        share::write_devices(&daemon.root, &instance)?;
    }
    daemon.power_on(name);
    Ok(())
}

/// Stops the VM over its monitor. Without one, another program stops the VM, which counts as off.
fn stop(daemon: &Arc<Daemon>, name: &str, body: &Value) -> Result<Value> {
    let order = if body["force"] == true { "quit" } else { "system_powerdown" };
    let ordered = daemon.with(name, |live| live.vm.order(order))??;
    if !ordered {
        daemon.power_off(name);
    }
    Ok(json!({ "ordered": ordered }))
}
