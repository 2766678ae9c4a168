//! The running host: its instances, what it knows of their agents, and the threads that serve them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::certs::Pair;
use crate::instance::{Channel, Instance, READY};
use crate::{agent_client, control, devlxd, status};

/// A host daemon.
pub(crate) struct Daemon {
    /// Where its files are.
    pub(crate) root: PathBuf,
    /// Where guests reach it.
    pub(crate) port: u32,
    /// Its own certificate.
    pub(crate) pair: Pair,
    instances: Mutex<BTreeMap<String, Live>>,
    listeners: Mutex<Vec<(Option<String>, Sender<Value>)>>,
    begun: Instant,
}

/// An instance and what is known of it while the daemon runs.
pub(crate) struct Live {
    /// As on disk.
    pub(crate) instance: Instance,
    /// STARTED was read and no STOPPED since.
    pub(crate) started: bool,
    /// The last word.
    pub(crate) state: &'static str,
    since: Instant,
    /// The last line, whatever it was.
    pub(crate) last_line: String,
    last_put: Value,
    /// Connections of the guest's.
    pub(crate) connections: u64,
    /// Of them, those that resumed a session.
    pub(crate) resumed: u64,
    /// The last request.
    pub(crate) last_request: String,
    /// A fault to play, and its number.
    pub(crate) fault: (String, u64),
}

impl Daemon {
    /// Reads the state and forgets every Ready, as a starting host must (P§6).
    pub(crate) fn new(root: &Path, port: u32) -> Result<Arc<Self>> {
        let pair = Pair::load_or_make(root, "server")?;
        let mut instances = BTreeMap::new();
        for mut instance in Instance::load_all(root)? {
            instance.config.remove(READY);
            instance.save(root)?;
            if matches!(instance.channel, Channel::Qmp(_)) {
                instance.write_conf(root, port, &pair.pem)?;
            }
            instances.insert(instance.name.clone(), Live::new(instance));
        }
        Ok(Arc::new(Self {
            root: root.to_owned(),
            port,
            pair,
            instances: Mutex::new(instances),
            listeners: Mutex::default(),
            begun: Instant::now(),
        }))
    }

    /// Starts a thread for each thing that is waited for, then serves the control socket.
    pub(crate) fn run(self: &Arc<Self>) -> Result<()> {
        self.log(&format!("listening on vsock port {}", self.port));
        let all: Vec<Instance> =
            self.instances().values().map(|live| live.instance.clone()).collect();
        devlxd::listen(self, &all)?;
        for instance in &all {
            status::watch(self, instance);
        }
        control::serve(self).context("control socket")
    }

    /// One line on stderr, with the time since start.
    pub(crate) fn log(&self, fact: &str) {
        let ago = self.begun.elapsed();
        let line = format!("[{:4}.{:03}] {fact}\n", ago.as_secs(), ago.subsec_millis());
        let _lost = std::io::stderr().write_all(line.as_bytes());
    }

    /// All instances. A thread that panicked has not left them half-changed.
    pub(crate) fn instances(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.instances.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs `look` on one.
    pub(crate) fn with<T>(&self, name: &str, look: impl FnOnce(&mut Live) -> T) -> Result<T> {
        let mut all = self.instances();
        let live = all.get_mut(name).with_context(|| format!("no instance is called {name}"))?;
        Ok(look(live))
    }

    /// Changes one, on disk too.
    pub(crate) fn change<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut Instance) -> T,
    ) -> Result<T> {
        self.with(name, |live| {
            let result = change(&mut live.instance);
            live.instance.save(&self.root).map(|()| result)
        })?
    }

    /// A line of the agent's was read: the rules of P§2.3.
    pub(crate) fn heard(self: &Arc<Self>, name: &str, line: &str) {
        let begins = self.with(name, |live| {
            line.clone_into(&mut live.last_line);
            let begins = line == "STARTED" && !live.started;
            match line {
                "STARTED" => {
                    live.started = true;
                    // A heartbeat of a connected agent is no news.
                    if live.state != "CONNECTED" || begins {
                        live.enter("STARTED");
                    }
                }
                "CONNECTED" => live.enter("CONNECTED"),
                "STOPPED" => {
                    live.started = false;
                    live.enter("STOPPED");
                }
                _ => {}
            }
            (begins, matches!(live.instance.channel, Channel::Qmp(_)))
        });
        match begins {
            Ok((true, by_put)) => {
                self.log(&format!("{name}: agent STARTED"));
                if by_put {
                    let (daemon, name) = (self.clone(), name.to_owned());
                    std::thread::spawn(move || daemon.advertise(&name));
                }
            }
            Ok((false, _)) if line == "CONNECTED" || line == "STOPPED" => {
                self.log(&format!("{name}: agent {line}"));
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// The VM is off: it is neither started nor Ready (P§6).
    pub(crate) fn stopped(&self, name: &str) -> Result<()> {
        self.change(name, |instance| instance.config.insert(READY.into(), "false".into()))?;
        self.log(&format!("{name}: stopped"));
        self.with(name, |live| {
            live.started = false;
            live.enter("STOPPED");
        })
    }

    /// `PUT /1.0`, once, within 3 s; nobody tries again if it fails (P§2.3).
    pub(crate) fn advertise(&self, name: &str) {
        let Ok((instance, fault)) =
            self.with(name, |live| (live.instance.clone(), live.fault.0.clone()))
        else {
            return;
        };
        if fault == "deny-put" {
            return self.log(&format!("{name}: PUT withheld"));
        }
        let begun = Instant::now();
        let body = instance.told(self.port, &self.pair.pem).to_string();
        let result = agent_client::put(&self.root, &instance, body.as_bytes());
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let error = result.as_ref().err().map(|error| format!("{error:#}"));
        let put = json!({"ok": error.is_none(), "error": error, "ms": millis, "at": now()});
        let text = match &error {
            None => format!("{name}: PUT /1.0 ok in {millis} ms"),
            Some(why) => format!("{name}: PUT /1.0 failed after {millis} ms: {why}"),
        };
        self.log(&text);
        let _known = self.with(name, |live| {
            live.last_put = put;
            if error.is_none() {
                live.enter("CONNECTED");
            }
        });
    }

    /// Sends an event to those who follow.
    pub(crate) fn event(&self, name: &str, action: &str) {
        self.log(&format!("{name}: {action}"));
        let event = json!({"type": "lifecycle", "timestamp": now(), "metadata": {
            "action": action, "source": format!("/1.0/instances/{name}")}});
        let mut listeners =
            self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        listeners.retain(|(only, sender)| {
            only.as_deref().is_some_and(|only| only != name) || sender.send(event.clone()).is_ok()
        });
    }

    /// Follows events, all or one instance's.
    pub(crate) fn follow(&self, only: Option<String>) -> Receiver<Value> {
        let (sender, receiver) = channel();
        let mut listeners =
            self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        listeners.push((only, sender));
        receiver
    }

    /// The state of an instance's agent, for people and tests.
    pub(crate) fn agent_state(&self, name: &str) -> Result<Value> {
        self.with(name, |live| {
            let stopped = live.state == "STOPPED";
            let status = match (stopped, live.instance.is_ready()) {
                (true, _) => "Stopped",
                (false, true) => "Ready",
                (false, false) => "Running",
            };
            json!({
                "state": live.state,
                "since_ms": u64::try_from(live.since.elapsed().as_millis()).unwrap_or(u64::MAX),
                "started": live.started,
                "last_line": live.last_line,
                "last_put": live.last_put,
                "connections": live.connections,
                "resumed": live.resumed,
                "last_request": live.last_request,
                "ready": live.instance.is_ready(),
                "status": status,
                "port": self.port,
            })
        })
    }
}

impl Live {
    fn new(instance: Instance) -> Self {
        Self {
            instance,
            started: false,
            state: "UNKNOWN",
            since: Instant::now(),
            last_line: String::new(),
            last_put: Value::Null,
            connections: 0,
            resumed: 0,
            last_request: String::new(),
            fault: (String::new(), 0),
        }
    }

    /// Takes note of a new state.
    pub(crate) fn enter(&mut self, state: &'static str) {
        if self.state != state {
            self.state = state;
            self.since = Instant::now();
        }
    }
}

/// RFC 3339, to the second: events carry it, nobody computes with it.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let days = i64::try_from(since.as_secs() / 86_400).unwrap_or(0);
    // Howard Hinnant's days-to-civil.
    let shifted = days + 719_468;
    let (era, doe) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    let second = since.as_secs() % 86_400;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}
