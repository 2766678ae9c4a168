//! The CONNECT dialect: a status port with both directions (decisions §1). The host sends its
//! address after connecting and after each STARTED. Reading its own lines back has no effect.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::daemon::{Daemon, Life, has_ended};
use mote_client::common::limits::STATUS_LINE;

/// Interval between attempts to open the port.
const RETRY: Duration = Duration::from_millis(200);
/// Limit for a write: a guest that does not read fills the socket, which is then opened again.
const WRITE: Duration = Duration::from_secs(5);

/// Starts a thread that watches an instance's port until the instance is deleted. With `shared`,
/// every byte is sent back, as if both sides used the same memory.
pub fn watch(daemon: &Arc<Daemon>, name: &str, path: PathBuf, shared: bool, life: Life) {
    let (daemon, name) = (daemon.clone(), name.to_owned());
    std::thread::spawn(move || {
        while !has_ended(&life) {
            if let Ok(port) = open(&path) {
                if let Err(why) = serve(&daemon, &name, &port, shared, &life) {
                    daemon.failed(&name, &format!("serial port: {why:#}"), None);
                }
                if has_ended(&life) {
                    return;
                }
                let _known = daemon.with(&name, |live| live.agent.cut());
            }
            std::thread::sleep(RETRY);
        }
    });
}

fn open(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.file_type().is_char_device() {
        // The tty must not become the controlling terminal.
        let noctty = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
        let tty = File::options().read(true).write(true).custom_flags(noctty).open(path)?;
        if let Ok(mut modes) = rustix::termios::tcgetattr(&tty) {
            // With echo and line editing, the tty would send back its own input.
            modes.make_raw();
            rustix::termios::tcsetattr(&tty, rustix::termios::OptionalActions::Now, &modes)?;
        }
        return Ok(tty);
    }
    let stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(WRITE))?;
    Ok(OwnedFd::from(stream).into())
}

fn serve(
    daemon: &Arc<Daemon>,
    name: &str,
    mut port: &File,
    shared: bool,
    life: &Life,
) -> Result<()> {
    let connect = format!("CONNECT 2:{} {}\n", daemon.port, daemon.pair.fingerprint());
    // A host that has just started sends its address to every agent (decisions §1).
    port.write_all(connect.as_bytes())?;
    let mut lines = Lines::default();
    let mut buffer = [0; 256];
    loop {
        let count = port.read(&mut buffer)?;
        if count == 0 {
            bail!("closed");
        }
        if has_ended(life) {
            return Ok(());
        }
        if shared {
            port.write_all(&buffer[..count])?;
        }
        for byte in &buffer[..count] {
            let Some(line) = lines.push(*byte) else { continue };
            // Ignore the host's own lines, which were sent back.
            if line.starts_with("CONNECT ") {
                continue;
            }
            daemon.heard(name, &[&line], Some(&line));
            if line == "STARTED" {
                port.write_all(connect.as_bytes())?;
            }
        }
    }
}

/// Splits bytes into lines.
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
    fn joins_split_lines_and_drops_overlong_ones() {
        let mut lines = Lines::default();
        let text = format!("STAR|TED\n{}STARTED\nCONN|ECTED\n\n", "x".repeat(STATUS_LINE));
        let got: Vec<String> =
            text.bytes().filter(|byte| *byte != b'|').filter_map(|byte| lines.push(byte)).collect();
        assert_eq!(got, ["STARTED", "CONNECTED", ""]);
    }
}
