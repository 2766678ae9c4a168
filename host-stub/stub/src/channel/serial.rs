//! The CONNECT dialect: a status port that carries data both ways (decisions §1). The host says where it
//! is on connecting and each time it reads STARTED; reading what it wrote itself does not matter.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::daemon::{Daemon, Life};
use mote_client::common::limits::STATUS_LINE;

/// Between two tries to reach the port.
const RETRY: Duration = Duration::from_millis(200);
/// A guest that does not read fills the socket; then the line is opened anew.
const WRITE: Duration = Duration::from_secs(5);

/// Watches an instance's port for as long as there is the instance, in a thread. With `shared`, every byte that is read is given
/// back, as if both sides looked at the same memory.
pub fn watch(daemon: &Arc<Daemon>, name: &str, path: PathBuf, shared: bool, life: Life) {
    let (daemon, name) = (daemon.clone(), name.to_owned());
    std::thread::spawn(move || {
        while !life.is_over() {
            if let Ok((reader, writer)) = open(&path) {
                let mut port = Port { reader, writer, shared };
                if let Err(why) = follow(&daemon, &name, &mut port, &life) {
                    daemon.failed(&name, &format!("serial port: {why:#}"), None);
                }
                if life.is_over() {
                    return;
                }
                let _known = daemon.with(&name, |live| live.agent.cut());
            }
            std::thread::sleep(RETRY);
        }
    });
}

struct Port {
    reader: Box<dyn Read>,
    writer: Box<dyn Write>,
    shared: bool,
}

fn open(path: &Path) -> io::Result<(Box<dyn Read>, Box<dyn Write>)> {
    if std::fs::metadata(path)?.file_type().is_char_device() {
        // Not as our controlling terminal.
        let noctty = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
        let tty = File::options().read(true).write(true).custom_flags(noctty).open(path)?;
        if let Ok(mut modes) = rustix::termios::tcgetattr(&tty) {
            // An echoing, line-editing tty would answer for us.
            modes.make_raw();
            rustix::termios::tcsetattr(&tty, rustix::termios::OptionalActions::Now, &modes)?;
        }
        return Ok((Box::new(tty.try_clone()?), Box::new(tty)));
    }
    let stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(WRITE))?;
    Ok((Box::new(stream.try_clone()?), Box::new(stream)))
}

fn follow(daemon: &Arc<Daemon>, name: &str, port: &mut Port, life: &Life) -> Result<()> {
    let connect = format!("CONNECT 2:{} {}\n", daemon.port, daemon.pair.fingerprint());
    // A host that has just started tells everybody where it is now (decisions §1).
    port.writer.write_all(connect.as_bytes())?;
    let mut lines = Lines::default();
    let mut buffer = [0; 256];
    loop {
        let count = port.reader.read(&mut buffer)?;
        if count == 0 {
            bail!("closed");
        }
        if life.is_over() {
            return Ok(());
        }
        if port.shared {
            port.writer.write_all(&buffer[..count])?;
        }
        for byte in &buffer[..count] {
            let Some(line) = lines.push(*byte) else { continue };
            // Our own words, given back, are not the agent's.
            if line.starts_with("CONNECT ") {
                continue;
            }
            daemon.heard(name, &[&line], Some(&line));
            if line == "STARTED" {
                port.writer.write_all(connect.as_bytes())?;
            }
        }
    }
}

/// Bytes into lines.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    overran: bool,
}

impl Lines {
    fn push(&mut self, byte: u8) -> Option<String> {
        if byte != b'\n' {
            self.overran |= self.bytes.len() == STATUS_LINE;
            if !self.overran {
                self.bytes.push(byte);
            }
            return None;
        }
        let whole = std::mem::take(self);
        (!whole.overran).then(|| String::from_utf8_lossy(&whole.bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_lines_are_joined_and_overlong_ones_are_dropped_whole() {
        let mut lines = Lines::default();
        let text = format!("STAR|TED\n{}STARTED\nCONN|ECTED\n\n", "x".repeat(STATUS_LINE));
        let got: Vec<String> =
            text.bytes().filter(|byte| *byte != b'|').filter_map(|byte| lines.push(byte)).collect();
        assert_eq!(got, ["STARTED", "CONNECTED", ""]);
    }
}
