//! How the agent's status reaches the host: QEMU's ring buffer over QMP, as real hosts read it
//! (P§2.3), or a socket that carries the port both ways, where the host answers with CONNECT.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::instance::{Channel, Flavour, Instance};

/// Without any event the ring is read this often (P§2.3).
const POLL: Duration = Duration::from_secs(10);
/// Between two tries to reach QEMU.
const RETRY: Duration = Duration::from_millis(100);

/// Watches an instance's channel for ever, in a thread.
pub(crate) fn watch(daemon: &Arc<Daemon>, instance: &Instance) {
    let (daemon, name, flavour) = (daemon.clone(), instance.name.clone(), instance.flavour);
    let channel = instance.channel.clone();
    std::thread::spawn(move || {
        loop {
            // QEMU is not there yet, or gone: look again.
            let _why = match &channel {
                Channel::Qmp(path) => ring(&daemon, &name, flavour, path),
                Channel::Serial { path, shared } => serial(&daemon, &name, path, *shared),
            };
            std::thread::sleep(RETRY);
        }
    });
}

fn ring(daemon: &Arc<Daemon>, name: &str, flavour: Flavour, path: &Path) -> Result<()> {
    let mut qmp = Qmp::connect(path)?;
    let ended = read_ring(daemon, name, flavour, &mut qmp);
    // Without QEMU there is no VM, whatever its agent said last.
    daemon.stopped(name)?;
    ended
}

fn read_ring(daemon: &Arc<Daemon>, name: &str, flavour: Flavour, qmp: &mut Qmp) -> Result<()> {
    loop {
        let read = qmp.call(&json!({"execute": "ringbuf-read", "arguments": {
            "device": "qemu_serial-chardev", "size": 16_384, "format": "utf8"}}))?;
        let text = read.as_str().unwrap_or("");
        let entries: Vec<&str> = text.split('\n').collect();
        // Newer Incus takes the line before the last (P§2.3).
        let back = if flavour == Flavour::Incus && entries.len() > 2 { 3 } else { 2 };
        if let Some(line) = entries.len().checked_sub(back).and_then(|at| entries.get(at)) {
            daemon.heard(name, line);
        }
        qmp.wait(POLL)?;
    }
}

/// A QMP connection.
struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    line: Vec<u8>,
    event: bool,
}

impl Qmp {
    fn connect(path: &Path) -> Result<Self> {
        let writer = UnixStream::connect(path)?;
        let reader = BufReader::new(writer.try_clone()?);
        let mut qmp = Self { reader, writer, line: Vec::new(), event: false };
        qmp.next(Some(Duration::from_secs(5)))?.context("no greeting")?;
        qmp.call(&json!({"execute": "qmp_capabilities"}))?;
        Ok(qmp)
    }

    fn call(&mut self, command: &Value) -> Result<Value> {
        self.writer.write_all(format!("{command}\n").as_bytes())?;
        loop {
            let answer = self.next(Some(Duration::from_secs(5)))?.context("QMP is silent")?;
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            if answer.get("error").is_some() {
                bail!("QMP: {answer}");
            }
            self.event = true;
        }
    }

    /// Waits for an event, or for the time to pass.
    fn wait(&mut self, limit: Duration) -> Result<()> {
        if std::mem::take(&mut self.event) {
            return Ok(());
        }
        self.next(Some(limit)).map(drop)
    }

    /// The next document, or `None` if it does not come in time.
    fn next(&mut self, limit: Option<Duration>) -> Result<Option<Value>> {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.writer.set_read_timeout(left)?;
            match self.reader.read_until(b'\n', &mut self.line) {
                Ok(0) => bail!("QMP is closed"),
                Ok(_) if self.line.ends_with(b"\n") => {
                    let line = std::mem::take(&mut self.line);
                    return Ok(Some(serde_json::from_slice(&line)?));
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn serial(daemon: &Arc<Daemon>, name: &str, path: &Path, shared: bool) -> Result<()> {
    let mut reader: Box<dyn Read>;
    let mut writer: Box<dyn Write>;
    if std::fs::metadata(path)?.file_type().is_char_device_like() {
        let tty = std::fs::File::options().read(true).write(true).open(path)?;
        (reader, writer) = (Box::new(tty.try_clone()?), Box::new(tty));
    } else {
        let stream = UnixStream::connect(path)?;
        (reader, writer) = (Box::new(stream.try_clone()?), Box::new(stream));
    }
    let connect = format!("CONNECT 2:{} {}\n", daemon.port, daemon.pair.fingerprint());
    // A host that has just started tells everybody where it is now (seeds §1).
    writer.write_all(connect.as_bytes())?;
    let mut line = Vec::new();
    let mut buffer = [0; 256];
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            bail!("the serial socket is closed");
        }
        if shared {
            writer.write_all(&buffer[..count])?;
        }
        for byte in &buffer[..count] {
            if *byte != b'\n' {
                if line.len() < 256 {
                    line.push(*byte);
                }
                continue;
            }
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            daemon.heard(name, &text);
            // Only to one that is not connected: the silent heartbeats of one that is want nothing.
            if text == "STARTED" && daemon.with(name, |live| live.state != "CONNECTED")? {
                writer.write_all(connect.as_bytes())?;
            }
        }
    }
}

trait CharDeviceLike {
    fn is_char_device_like(&self) -> bool;
}

impl CharDeviceLike for std::fs::FileType {
    fn is_char_device_like(&self) -> bool {
        std::os::unix::fs::FileTypeExt::is_char_device(self)
    }
}
