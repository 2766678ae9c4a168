//! The status channel as real hosts read it: QEMU's ring buffer, by `ringbuf-read` over QEMU's
//! monitor, after connecting, on every event, and every 10 s without one (P§2.3). The host never
//! writes to the ring. Other threads may send orders over a copy of the connection.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::daemon::vm::{Monitor, NO_SPACE, Orders};
use crate::daemon::{Daemon, Life, has_ended};
use mote_client::common::limits::MONITOR_DOCUMENT;
use mote_client::common::whole_file::end_of_log;
use mote_client::instance::CONFIG_DISK;
use mote_client::{Agent, Flavour, Instance, Limit, store};

/// Interval between reads without an event (P§2.3).
const POLL: Duration = Duration::from_secs(10);
/// Interval between reads of a micro VM's console.
const CONSOLE_LOOK: Duration = Duration::from_millis(500);
/// Interval between attempts to connect to QEMU.
const RETRY: Duration = Duration::from_millis(200);

/// The instance whose ring is read.
#[derive(Clone)]
struct Watch {
    daemon: Arc<Daemon>,
    name: String,
    flavour: Flavour,
    life: Life,
}

/// Starts a thread that watches an instance's ring until the instance is deleted.
pub fn watch(daemon: &Arc<Daemon>, instance: &Instance, path: PathBuf, life: Life) {
    let (daemon, name) = (daemon.clone(), instance.name.clone());
    let watch = Watch { daemon, name, flavour: instance.flavour, life };
    let was_running = instance.is_running();
    std::thread::spawn(move || watch.run(&path, was_running));
}

impl Watch {
    fn run(&self, path: &Path, mut was_running: bool) {
        let (daemon, name) = (&self.daemon, &self.name);
        while !has_ended(&self.life) {
            match Qmp::connect(path) {
                Ok(mut qmp) => {
                    daemon.vm_found(name, qmp.writer.clone());
                    if self.flavour == Flavour::LxdMicro && !was_running {
                        let micro = self.clone();
                        std::thread::spawn(move || micro.poll());
                    }
                    if let Err(why) = self.serve(&mut qmp) {
                        daemon.log(&format!("{name}: QMP: {why:#}"));
                        let rest = qmp.rest();
                        let _deleted = daemon
                            .with(name, |live| rest.iter().for_each(|event| live.vm.note(event)));
                    }
                    if has_ended(&self.life) {
                        return;
                    }
                    // Without a monitor, there is no VM.
                    daemon.vm_gone(name);
                }
                Err(monitor) => {
                    let _deleted = daemon.with(name, |live| live.vm.monitor = monitor);
                    // The VM ran under the previous daemon and has ended since.
                    if was_running && monitor == Monitor::Silent {
                        daemon.vm_off(name);
                    }
                }
            }
            was_running = false;
            std::thread::sleep(RETRY);
        }
    }

    fn serve(&self, qmp: &mut Qmp) -> Result<()> {
        let (daemon, name) = (&self.daemon, &self.name);
        let does =
            qmp.ask("query-status")?.and_then(|status| Some(status["status"].as_str()?.into()));
        daemon.with(name, |live| live.vm.does = does.unwrap_or_default())?;
        if daemon.with(name, |live| live.vm.is_paused())? {
            // QEMU stopped the VM before this connection.
            if qmp.ask("query-block")?.as_ref().is_some_and(lacks_room) {
                daemon.with(name, |live| live.vm.does = NO_SPACE.into())?;
            }
        }
        let is_micro = self.flavour == Flavour::LxdMicro;
        let mut is_over = false;
        loop {
            if !is_micro {
                self.read_port(qmp)?;
            } else if !is_over && has_halted(daemon, name) {
                daemon.with(name, |live| live.vm.halted())??;
            }
            if has_ended(&self.life) {
                return Ok(());
            }
            if is_over {
                bail!("the VM was shut down");
            }
            if daemon.with(name, |live| !live.agent.started)? {
                // Until the agent reports itself, the bytes read of its config disk show how far
                // the guest is.
                let read = qmp.ask("query-blockstats")?.as_ref().and_then(share_read);
                daemon.with(name, |live| live.vm.share_read = read)?;
            }
            let events = qmp.wait(if is_micro { CONSOLE_LOOK } else { POLL })?;
            // The last lines of a VM that shuts down are still in the ring.
            is_over = events.iter().any(|event| event["event"] == "SHUTDOWN");
            daemon.with(name, |live| events.iter().for_each(|event| live.vm.note(event)))?;
        }
    }

    fn read_port(&self, qmp: &mut Qmp) -> Result<()> {
        let size = json!({"device": "qemu_serial-chardev", "size": 16_384, "format": "utf8"});
        let read = qmp.call("ringbuf-read", &size)?;
        if let Some(error) = read.get("error") {
            // A VM without that device is still a VM.
            let error = error["desc"].as_str().unwrap_or("an error");
            self.daemon.failed(&self.name, &format!("QMP: {error}"), None);
        }
        let text = read["return"].as_str().unwrap_or("");
        let mut lines: Vec<&str> = text.split('\n').collect();
        // An unfinished line is lost, because reading empties the ring.
        lines.pop();
        if !has_ended(&self.life) {
            self.daemon.heard(&self.name, &lines, decisive(self.flavour, &lines));
        }
        Ok(())
    }

    /// Calls the agent of a micro VM as LXD does after its start, until it answers. The agent then
    /// gets the host's address, once.
    fn poll(&self) {
        const INTERVAL: Duration = Duration::from_secs(5);
        const LIMIT: Duration = Duration::from_secs(180);
        let begun = Instant::now();
        while begun.elapsed() < LIMIT && !has_ended(&self.life) {
            let Ok(instance) = self.daemon.instance(&self.name) else { return };
            if !instance.is_running() {
                return;
            }
            if Agent::of(&self.daemon.root, &instance).greet(Limit::within(INTERVAL)).is_ok() {
                return self.daemon.heard(&self.name, &[], Some("STARTED"));
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

/// Returns whether the kernel of a micro VM has printed its last line, from which LXD detects the
/// end.
fn has_halted(daemon: &Daemon, name: &str) -> bool {
    // The kernel of LXD prints the first line, Linux 6.1 the second.
    const LAST: [&str; 3] =
        ["reboot: Power off not available", "reboot: System halted", "reboot: Power down"];
    let console = end_of_log(&store::directory(&daemon.root, name).join("console"));
    LAST.iter().any(|line| console.contains(line))
}

fn lacks_room(blocks: &Value) -> bool {
    let blocks = blocks.as_array().into_iter().flatten();
    blocks.into_iter().any(|block| block["io-status"] == "nospace")
}

fn share_read(blocks: &Value) -> Option<u64> {
    let is_it = |block: &&Value| block["device"] == CONFIG_DISK;
    blocks.as_array()?.iter().find(is_it)?["stats"]["rd_bytes"].as_u64()
}

/// Returns the decisive line: the last one. Incus since 7.0.1 uses the one before it if there are
/// two, which is why agents write STOPPED twice (P§2.3).
fn decisive<'a>(flavour: Flavour, lines: &[&'a str]) -> Option<&'a str> {
    let back = if flavour == Flavour::Incus && lines.len() > 1 { 2 } else { 1 };
    lines.len().checked_sub(back).and_then(|at| lines.get(at)).copied()
}

/// Limit for QEMU's answer, which is late on a busy machine.
const ANSWER: Duration = Duration::from_secs(5);
/// Limit for reading the remaining data of a closed monitor, all of which has arrived.
const REST: Duration = Duration::from_millis(100);

pub(super) struct Qmp {
    reader: BufReader<UnixStream>,
    writer: Arc<Orders>,
    line: Vec<u8>,
    /// Number of commands so far, which identifies the answers.
    commands: u64,
    /// Events that arrived before an answer.
    events: Vec<Value>,
}

impl Qmp {
    /// Connects. The error says why that failed: the monitor serves one client, and sends others no
    /// greeting.
    pub(super) fn connect(path: &Path) -> Result<Self, Monitor> {
        let connected = UnixStream::connect(path).map_err(|_| Monitor::Silent)?;
        Self::greeted(connected).map_err(|_| Monitor::Taken)
    }

    fn greeted(stream: UnixStream) -> Result<Self> {
        stream.set_write_timeout(Some(ANSWER))?;
        let reader = BufReader::new(stream.try_clone()?);
        let writer = Arc::new(Orders::new(stream));
        let (line, events) = (Vec::new(), Vec::new());
        let mut qmp = Self { reader, writer, line, commands: 0, events };
        qmp.next(ANSWER)?.context("no greeting")?;
        qmp.call("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    pub(super) fn call(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.commands += 1;
        self.writer.write(&json!({"execute": command, "arguments": arguments,
            "id": self.commands}))?;
        let end = Instant::now() + ANSWER;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let answer = self.next(left)?.context("no answer")?;
            if answer["id"] == self.commands {
                return Ok(answer);
            }
            self.take(answer);
        }
    }

    /// Returns what a command returned; `None` if QEMU does not know it.
    pub(super) fn ask(&mut self, command: &str) -> Result<Option<Value>> {
        let mut answer = self.call(command, &json!({}))?;
        Ok(answer.get_mut("return").map(Value::take))
    }

    /// Keeps an event. Answers to orders are ignored.
    fn take(&mut self, document: Value) {
        // More than the number of events in a burst of QEMU's.
        const MOST: usize = 64;
        if document.get("event").is_some() && self.events.len() < MOST {
            self.events.push(document);
        }
    }

    /// Waits for an event until `limit`, and returns the events.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Vec<Value>> {
        let end = Instant::now() + limit;
        while self.events.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            let Some(document) = self.next(left)? else { break };
            self.take(document);
        }
        Ok(std::mem::take(&mut self.events))
    }

    /// Returns the remaining events of a closed monitor. They often show why an answer never came.
    pub(super) fn rest(&mut self) -> Vec<Value> {
        let end = Instant::now() + REST;
        while let Ok(Some(document)) = self.next(end.saturating_duration_since(Instant::now())) {
            self.take(document);
        }
        std::mem::take(&mut self.events)
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Value>> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.reader.get_ref().set_read_timeout(Some(left))?;
            let room = MONITOR_DOCUMENT.saturating_sub(u64::try_from(self.line.len())?);
            match (&mut self.reader).take(room).read_until(b'\n', &mut self.line) {
                Ok(0) if room == 0 => bail!("a document is too long"),
                Ok(0) => bail!("closed"),
                Ok(_) if self.line.ends_with(b"\n") => {
                    let line = std::mem::take(&mut self.line);
                    return serde_json::from_slice(&line).map(Some).context("not JSON");
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn selects_each_servers_line() {
        for (lines, lxd, incus) in [
            (&[][..], None, None),
            (&["STARTED"], Some("STARTED"), Some("STARTED")),
            (&["STARTED", "CONNECTED"], Some("CONNECTED"), Some("STARTED")),
            (&["STARTED", "STOPPED"], Some("STOPPED"), Some("STARTED")),
            (&["STOPPED", "STOPPED"], Some("STOPPED"), Some("STOPPED")),
            (&["a", "b", "c"], Some("c"), Some("b")),
        ] {
            assert_eq!(decisive(Flavour::Lxd, lines), lxd, "{lines:?}");
            assert_eq!(decisive(Flavour::LxdOld, lines), lxd, "{lines:?}");
            assert_eq!(decisive(Flavour::Incus, lines), incus, "{lines:?}");
        }
    }

    #[test]
    fn reads_the_reason_of_qemus_end_instead_of_an_answer() {
        let (line, mut qemu) = UnixStream::pair().unwrap();
        let shutdown = json!({"event": "SHUTDOWN", "data": {"reason": "guest-reset"}});
        let documents = [json!({"QMP": {}}), json!({"return": {}, "id": 1})];
        let events = [json!({"event": "STOP"}), shutdown];
        for document in documents.iter().chain(&events) {
            write!(qemu, "{document}\r\n").unwrap();
        }
        let mut qmp = Qmp::greeted(line).unwrap();
        drop(qemu);
        qmp.ask("query-status").unwrap_err();
        assert_eq!(qmp.rest(), events);
        assert!(qmp.rest().is_empty());
    }
}
