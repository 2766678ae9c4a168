//! The status channel as real hosts read it: QEMU's ring buffer, by `ringbuf-read` over QMP, once on
//! connecting, on every event, and every 10 s without one (P§2.3). Nothing is ever written to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::daemon::{Daemon, Life};
use crate::instance::{Flavour, Instance};

/// Without any event the ring is read this often (P§2.3).
const POLL: Duration = Duration::from_secs(10);
/// Between two tries to reach QEMU.
const RETRY: Duration = Duration::from_millis(200);
/// For QEMU's answer to a command; it is held up when its machine is busy.
const ANSWER: Duration = Duration::from_secs(5);
/// The longest document QEMU may send, bytes.
const DOCUMENT: u64 = 1024 * 1024;

/// Watches an instance's ring for as long as there is the instance, in a thread.
pub(crate) fn watch(daemon: &Arc<Daemon>, instance: &Instance, path: PathBuf, life: Life) {
    let (daemon, name, flavour) = (daemon.clone(), instance.name.clone(), instance.flavour);
    let mut was_running = instance.is_running();
    std::thread::spawn(move || {
        while !life.is_over() {
            match Qmp::connect(&path) {
                Ok(mut qmp) => {
                    daemon.power_on(&name);
                    if let Err(why) = follow(&daemon, &name, flavour, &mut qmp, &life) {
                        daemon.log(&format!("{name}: QMP: {why:#}"));
                    }
                    if life.is_over() {
                        return;
                    }
                    // A monitor that is gone is a VM that is gone.
                    daemon.power_off(&name);
                }
                // It ran when the last daemon was here, and does no longer.
                Err(_) if was_running => daemon.power_off(&name),
                Err(_) => {}
            }
            was_running = false;
            std::thread::sleep(RETRY);
        }
    });
}

fn follow(
    daemon: &Arc<Daemon>,
    name: &str,
    flavour: Flavour,
    qmp: &mut Qmp,
    life: &Life,
) -> Result<()> {
    loop {
        let read = qmp.call(&json!({"execute": "ringbuf-read", "arguments": {
            "device": "qemu_serial-chardev", "size": 16_384, "format": "utf8"}}))?;
        if let Some(error) = read.get("error") {
            // A VM without that device still is one.
            daemon.failed(name, &format!("QMP: {}", error["desc"].as_str().unwrap_or("an error")));
        }
        if life.is_over() {
            return Ok(());
        }
        let text = read["return"].as_str().unwrap_or("");
        let mut lines: Vec<&str> = text.split('\n').collect();
        // What comes after the last newline is not a line yet, and is lost: reading empties the ring.
        lines.pop();
        daemon.heard(name, &lines, decisive(flavour, &lines));
        if qmp.is_shut_down {
            bail!("the VM was shut down");
        }
        qmp.wait(POLL)?;
    }
}

/// The line that counts: the last one. Incus from 7.0.1 on takes the one before it if there are two,
/// which is why agents say STOPPED twice (P§2.3).
fn decisive<'a>(flavour: Flavour, lines: &[&'a str]) -> Option<&'a str> {
    let back = match flavour {
        Flavour::Incus if lines.len() > 1 => 2,
        Flavour::Incus | Flavour::Lxd | Flavour::LxdOld => 1,
    };
    lines.len().checked_sub(back).and_then(|at| lines.get(at)).copied()
}

/// A QMP connection.
struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    line: Vec<u8>,
    /// Events that came while an answer was awaited.
    events: u32,
    is_shut_down: bool,
}

impl Qmp {
    fn connect(path: &Path) -> Result<Self> {
        let writer = UnixStream::connect(path)?;
        writer.set_write_timeout(Some(ANSWER))?;
        let reader = BufReader::new(writer.try_clone()?);
        let mut qmp = Self { reader, writer, line: Vec::new(), events: 0, is_shut_down: false };
        qmp.next(ANSWER)?.context("no greeting")?;
        qmp.call(&json!({"execute": "qmp_capabilities"}))?;
        Ok(qmp)
    }

    /// The answer to a command, whether a return or an error.
    fn call(&mut self, command: &Value) -> Result<Value> {
        self.writer.write_all(format!("{command}\n").as_bytes())?;
        let end = Instant::now() + ANSWER;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let answer = self.next(left)?.context("no answer")?;
            if answer.get("return").is_some() || answer.get("error").is_some() {
                return Ok(answer);
            }
            self.take_event(&answer);
        }
    }

    fn take_event(&mut self, document: &Value) {
        self.events += 1;
        self.is_shut_down |= document["event"] == "SHUTDOWN";
    }

    /// Waits for an event, or for the time to pass.
    fn wait(&mut self, limit: Duration) -> Result<()> {
        if std::mem::take(&mut self.events) == 0
            && let Some(event) = self.next(limit)?
        {
            self.take_event(&event);
            self.events = 0;
        }
        Ok(())
    }

    /// The next document, or `None` if it does not come in time.
    fn next(&mut self, limit: Duration) -> Result<Option<Value>> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.writer.set_read_timeout(Some(left))?;
            let room = DOCUMENT.saturating_sub(u64::try_from(self.line.len())?);
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
    use super::*;

    #[test]
    fn the_line_that_counts_is_each_servers_own() {
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
}
