//! The running host: its instances, its knowledge of their agents, and its actions when an agent or
//! a VM starts or ends (P§2.3, P§6). The only lock is held to read or change state, never while
//! waiting for a peer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::agent_state::{AgentState, Edge, Put, Word};
use self::diagnosis::{by_port_alone, diagnose};
use self::fault::{Fault, Kind};
use self::vm::{Orders, Vm};
use mote_client::common::whole_file::write_whole;
use mote_client::instance::{AGENT, POWER, READY, vsock_device};
use mote_client::net::tls::Pair;
use mote_client::{
    Agent, CallFailure, Channel, FailedCall, Flavour, Instance, clock, printable, store,
};

pub mod agent_state;
pub mod diagnosis;
pub mod fault;
pub mod vm;

pub struct Daemon {
    pub root: PathBuf,
    pub port: u32,
    pub pair: Pair,
    instances: Mutex<BTreeMap<String, Live>>,
    sockets: Mutex<Vec<PathBuf>>,
    begun: Instant,
    /// The log file; stderr if `None`.
    log_file: Option<File>,
}

impl Daemon {
    /// Reads the state and clears every Ready, as a starting host must (P§6).
    pub fn new(root: &Path, port: u32, log_file: Option<File>) -> Result<Arc<Self>> {
        let pair = Pair::load_or_make(root, "server")?;
        write_whole(&root.join(store::PORT), format!("{port}\n").as_bytes(), 0o600)?;
        let daemon = Self {
            root: root.to_owned(),
            port,
            pair,
            instances: Mutex::default(),
            sockets: Mutex::default(),
            begun: Instant::now(),
            log_file,
        };
        Ok(Arc::new(daemon))
    }

    /// Logs a line, with the time since start. Guests influence many of them.
    pub fn log(&self, fact: &str) {
        let (ago, fact) = (self.begun.elapsed(), printable::log_line(fact));
        let line = format!("[{:4}.{:03}] {fact}\n", ago.as_secs(), ago.subsec_millis());
        let _lost = match &self.log_file {
            Some(file) => { file }.write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }

    pub fn failed(&self, name: &str, error: &str, failure: Option<CallFailure>) {
        self.log(&format!("{name}: {error}"));
        let _gone = self.with(name, |live| live.agent.failed(error, failure));
    }

    /// Records the file of a socket, to be removed at the end.
    pub fn bound(&self, path: &Path) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
    }

    pub fn unbind(&self) {
        for path in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _gone = std::fs::remove_file(path);
        }
    }

    /// Locks all instances. A thread that panicked has left none half-changed.
    pub fn instances(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn with<T>(&self, name: &str, look: impl FnOnce(&mut Live) -> T) -> Result<T> {
        let mut all = self.instances();
        let live = all.get_mut(name).with_context(|| format!("no instance is named {name}"))?;
        Ok(look(live))
    }

    pub fn instance(&self, name: &str) -> Result<Instance> {
        self.with(name, |live| live.instance.clone())
    }

    /// Changes an instance, on disk first, so that an answer is never ahead of the disk.
    pub fn change<T>(&self, name: &str, change: impl FnOnce(&mut Instance) -> T) -> Result<T> {
        self.with(name, |live| {
            let mut changed = live.instance.clone();
            let result = change(&mut changed);
            if changed != live.instance {
                store::save(&self.root, &changed)?;
                live.instance = changed;
            }
            Ok(result)
        })?
    }

    pub fn write_conf(&self, instance: &Instance) -> Result<()> {
        store::write_conf(&self.root, instance, self.port, &self.pair.pem)
    }

    pub fn event(&self, name: &str, action: &str) {
        self.log(&format!("{name}: {action}"));
    }

    /// Records lines of the agent; `decisive` is the one that counts (P§2.3).
    pub fn heard(self: &Arc<Self>, name: &str, lines: &[&str], decisive: Option<&str>) {
        let edge = self.with(name, |live| {
            for line in lines {
                live.agent.note(line);
            }
            if live.instance.flavour == Flavour::Incus {
                live.agent.note_state(lines);
            }
            decisive.map_or(Edge::Same, |line| live.agent.decide(line))
        });
        for line in lines {
            // STARTED is a heartbeat; only the first one is an event.
            if matches!(*line, "CONNECTED" | "STOPPED") {
                self.log(&format!("{name}: agent {line}"));
            }
        }
        match edge {
            Ok(Edge::Began) => self.agent_began(name),
            Ok(Edge::Ended) => self.agent_noted(name, "STOPPED", "instance-agent-stopped"),
            Ok(Edge::Same) | Err(_) => {}
        }
    }

    fn agent_began(self: &Arc<Self>, name: &str) {
        self.log(&format!("{name}: agent STARTED"));
        self.power_on(name);
        let Ok(instance) = self.instance(name) else { return };
        if matches!(instance.channel, Channel::Serial { .. }) {
            // In this dialect, CONNECT has already reported the address.
            return self.agent_noted(name, "STARTED", "instance-agent-started");
        }
        let (daemon, name) = (self.clone(), name.to_owned());
        std::thread::spawn(move || {
            // The PUT is not repeated if it fails (P§2.3).
            if daemon.advertise(&instance).is_ok() {
                daemon.agent_noted(&name, "STARTED", "instance-agent-started");
            }
        });
    }

    /// Records the agent's state as Incus does; LXD does not (P§6).
    pub(super) fn agent_noted(&self, name: &str, state: &str, action: &str) {
        let noted = self.change(name, |instance| {
            let is_incus = instance.flavour == Flavour::Incus;
            if is_incus {
                set(instance, AGENT, state);
            }
            is_incus
        });
        if noted.is_ok_and(|is_incus| is_incus) {
            self.event(name, action);
        }
    }

    /// Sends `PUT /1.0` once, within 3 s. `instance` may be newer than on disk.
    pub fn advertise(&self, instance: &Instance) -> Result<()> {
        let name = instance.name.as_str();
        if self.with(name, |live| live.fault.kind)? == Kind::DenyPut {
            self.log(&format!("{name}: PUT withheld"));
            bail!("PUT withheld");
        }
        let begun = Instant::now();
        let body = instance.host_info(self.port, &self.pair.pem).to_string();
        let agent = Agent::of(&self.root, instance);
        let result = agent.tell("PUT", "/1.0", body.as_bytes());
        let took = begun.elapsed();
        let error = result.as_ref().err();
        let failure = error.and_then(FailedCall::cause);
        let error = error.map(|error| format!("{error:#}"));
        let millis = clock::millis(took);
        self.log(&match &error {
            None => format!("{name}: PUT /1.0 ok in {millis} ms"),
            Some(why) => format!("{name}: PUT /1.0 failed after {millis} ms: {why}"),
        });
        let put = Put { error, failure, at: SystemTime::now(), took };
        self.with(name, |live| live.agent.put(put))?;
        result
    }

    /// Returns the state of an instance's agent for people and tests. `failure` is the cause of a
    /// call that just failed.
    pub fn agent_state(&self, name: &str, failure: Option<CallFailure>) -> Result<Value> {
        self.with(name, |live| {
            let instance = &live.instance;
            let mut shown = live.agent.to_json();
            shown["ready"] = json!(instance.is_ready());
            shown["status"] = json!(live.status());
            shown["port"] = json!(instance.host_port(self.port));
            shown["flavour"] = json!(instance.flavour);
            shown["vsock"] = json!(instance.vsock);
            shown["channel"] = json!(instance.channel);
            shown["vm"] = live.vm.to_json();
            shown["port_alone"] = json!(by_port_alone(live));
            shown["why"] = json!(diagnose(live, failure));
            shown["fault"] = json!(live.fault.to_string());
            shown["running_ms"] =
                json!(live.running.map(|running| clock::millis(running.elapsed())));
            shown
        })
    }
}

/// An instance and the daemon's knowledge of it.
pub struct Live {
    pub instance: Instance,
    pub agent: AgentState,
    pub fault: Fault,
    /// Whether its guest has called with the correct certificate, which proves that it runs.
    pub called: bool,
    /// When it was first known to run.
    pub running: Option<Instant>,
    /// The VM as QEMU reports it.
    pub vm: Vm,
    /// When dropped, the threads that serve the instance end.
    pub life: Arc<()>,
}

/// A weak reference to [`Live::life`] for the threads that serve the instance. If the instance is
/// deleted and created again under the same name, it has another `life`.
pub type Life = Weak<()>;

pub fn has_ended(life: &Life) -> bool {
    life.strong_count() == 0
}

impl Live {
    pub fn new(instance: Instance) -> Self {
        Self {
            instance,
            agent: AgentState::default(),
            fault: Fault::default(),
            called: false,
            running: None,
            vm: Vm::default(),
            life: Arc::default(),
        }
    }

    /// Returns whether the VM runs. Without a monitor, an agent that has called runs.
    pub fn is_running(&self) -> bool {
        self.instance.is_running() || self.called
    }

    pub fn status(&self) -> &'static str {
        match (self.is_running(), self.instance.is_ready()) {
            (false, _) => "Stopped",
            (true, _) if self.vm.is_paused() => "Frozen",
            (true, true) => "Ready",
            (true, false) => "Running",
        }
    }
}

/// Sets a key and returns whether its value has changed.
fn set(instance: &mut Instance, key: &str, value: &str) -> bool {
    instance.config.insert(key.into(), value.into()).is_none_or(|was| was != value)
}

impl Daemon {
    pub fn vm_found(&self, name: &str, orders: Arc<Orders>) {
        let _gone = self.with(name, |live| {
            live.vm = Vm::found(orders);
            live.agent.power_on();
        });
        self.power_on(name);
    }

    /// Records that its monitor, and therefore the VM, has ended. Ends the vsock process that the
    /// recipe started.
    pub fn vm_gone(&self, name: &str) {
        let _deleted = self.with(name, |live| {
            let heard = live.called || live.agent.word != Word::Unknown;
            live.vm.gone(heard);
        });
        self.vm_off(name);
    }

    pub fn vm_off(&self, name: &str) {
        self.power_off(name);
        let Ok(instance) = self.instance(name) else { return };
        match vsock_device::end(&self.root, &instance) {
            Ok(true) => self.log(&format!("{name}: stopped vhost-device-vsock")),
            Ok(false) => {}
            Err(error) => self.log(&format!("{name}: {error:#}")),
        }
    }

    pub fn power_on(&self, name: &str) {
        let set = self.change(name, |instance| set(instance, POWER, "RUNNING"));
        // A daemon that finds a running VM has not seen its start, so the time counts from now.
        let _gone = self.with(name, |live| {
            live.running.get_or_insert_with(Instant::now);
        });
        match set {
            Ok(true) => self.event(name, "instance-started"),
            Ok(false) => {}
            Err(error) => self.log(&format!("{name}: {error:#}")),
        }
    }

    /// Records that the VM is off, and clears Ready (P§6). Also prepares the share for the next
    /// start, which may not be announced in time.
    pub fn power_off(&self, name: &str) {
        let set = self.change(name, |instance| {
            set(instance, READY, "false");
            set(instance, POWER, "STOPPED")
        });
        let instance = self.with(name, |live| {
            live.agent.power_off();
            live.called = false;
            live.running = None;
            live.instance.clone()
        });
        let result = match (set, instance) {
            (Ok(true), Ok(instance)) => {
                self.event(name, "instance-stopped");
                if instance.flavour == Flavour::Incus && instance.config.contains_key(AGENT) {
                    self.agent_noted(name, "STOPPED", "instance-agent-stopped");
                }
                match instance.channel {
                    Channel::Serial { .. } => Ok(()),
                    Channel::Qmp(_) => self.write_conf(&instance),
                }
            }
            (Ok(false), Ok(_)) => Ok(()),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        if let Err(error) = result {
            self.log(&format!("{name}: {error:#}"));
        }
    }
}
