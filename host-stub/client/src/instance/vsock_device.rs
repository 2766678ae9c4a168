//! The process that replaces the kernel's vsock, vhost-device-vsock. If mote-host's recipe started
//! it, mote-host ends it together with the VM or the instance.
//!
//! If the thread that serves the guest panics, version 0.3.0 keeps running and its socket still
//! accepts connections. The panic occurs if a client closes its connection before the guest has
//! accepted it (docs/how-to/troubleshoot.md). A client that closes before it has sent its `CONNECT`
//! line makes the thread spin. For this reason the device is not probed by connections.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{Instance, Vsock, store};
use crate::common::printable::log_line;
use crate::common::whole_file::end_of_log;

/// QEMU's socket of the device, in the instance's directory.
pub const DEVICE: &str = "vhost";
/// Locked by the recipe while the device runs.
pub const DEVICE_LOCK: &str = "vhost.lock";
const PROGRAM: &str = "vhost-device-vsock";
/// Name of the thread that serves the guest's queues.
const WORKER: &str = "vring_worker";
/// How long a thread may be missing: when QEMU disconnects, the device replaces it.
const RESTART: Duration = Duration::from_millis(500);
/// Interval between checks of its threads.
const LOOK: Duration = Duration::from_millis(200);
/// How long an abandoned connection stays open for the guest's answer.
const ABANDONED: Duration = Duration::from_secs(60);

/// Ends the instance's device if the recipe started it. Returns whether it did.
pub fn end(root: &Path, instance: &Instance) -> Result<bool> {
    let lock = store::directory(root, &instance.name).join(DEVICE_LOCK);
    match File::open(&lock) {
        // If the lock is free, no device runs; if it is missing, the recipe did not start one.
        Ok(lock) if lock.try_lock().is_err() => {}
        Ok(_) | Err(_) => return Ok(false),
    }
    let Some(pid) = process(instance) else { return Ok(false) };
    let process = pidfd_open(pid, PidfdFlags::empty()).context(PROGRAM)?;
    // From here on the pidfd protects against reuse of the process id.
    if self::process(instance) != Some(pid) {
        return Ok(false);
    }
    pidfd_send_signal(&process, Signal::TERM).context(PROGRAM)?;
    Ok(true)
}

/// Returns why the instance's device no longer serves the guest, if it runs but does not serve.
pub fn why_stopped(instance: &Instance) -> Option<String> {
    stopped(process(instance)?)
}

/// Like [`why_stopped`], for the device with this process id.
pub fn stopped(pid: Pid) -> Option<String> {
    let line = command_line(pid);
    if !is_device(&line) || serves(pid) {
        return None;
    }
    thread::sleep(RESTART);
    (command_line(pid) == line && !serves(pid)).then(|| last_line(&log(&line)))
}

/// Keeps an abandoned connection open until the guest has answered, because the device panics if it
/// cannot write that answer.
pub fn abandon(mut connection: UnixStream) {
    thread::spawn(move || {
        let limit = connection.set_read_timeout(Some(ABANDONED));
        let _answer = limit.and_then(|()| connection.read(&mut [0]));
    });
}

/// Checks whether a device that was started as a child still serves the guest.
#[derive(Debug)]
pub struct Watch {
    pid: Pid,
    log: PathBuf,
    has_served: bool,
    looked: Instant,
    gone: Option<Instant>,
}

impl Watch {
    pub fn new(pid: Pid, log: PathBuf) -> Self {
        Self { pid, log, has_served: serves(pid), looked: Instant::now(), gone: None }
    }

    /// Returns the reason if it no longer serves. Checks at most once per [`LOOK`].
    pub fn why_stopped(&mut self) -> Option<String> {
        if self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        if serves(self.pid) {
            (self.has_served, self.gone) = (true, None);
        } else if self.has_served && self.gone.get_or_insert(self.looked).elapsed() > RESTART {
            return Some(last_line(&self.log));
        }
        None
    }
}

fn serves(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let mut names =
        threads.into_iter().flatten().flatten().map(|thread| thread.path().join("comm"));
    names.any(|name| fs::read_to_string(name).is_ok_and(|name| name.trim_end() == WORKER))
}

fn last_line(log: &Path) -> String {
    let text = end_of_log(log);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    // The place and reason of a panic precede its backtrace.
    let last = match lines.clone().position(|line| line.contains(" panicked at ")) {
        Some(at) => lines.skip(at).take(2).collect::<Vec<_>>().join(" "),
        None => lines.next_back().unwrap_or("it printed nothing here").to_owned(),
    };
    format!("{PROGRAM} stopped serving: {}", log_line(&last))
}

pub fn process(instance: &Instance) -> Option<Pid> {
    let Vsock::Uds(socket) = &instance.vsock else { return None };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbers =
        all.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    numbers.find(|pid| {
        let line = command_line(*pid);
        is_device(&line) && value(&line, b"uds-path=") == Some(socket.as_os_str().as_bytes())
    })
}

fn command_line(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default()
}

fn is_device(line: &[u8]) -> bool {
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    program.rsplit(|byte| *byte == b'/').next() == Some(PROGRAM.as_bytes())
}

fn value<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    line.split(|byte| matches!(byte, 0 | b',')).find_map(|part| part.strip_prefix(key))
}

/// Returns the path of the device's log, which exists if `run` or `boot` started the device.
fn log(line: &[u8]) -> PathBuf {
    let socket = value(line, b"socket=").unwrap_or_default();
    Path::new(std::ffi::OsStr::from_bytes(socket)).with_extension("log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_the_device_by_its_socket() {
        let of = |words: &[&str]| {
            let line = words.join("\0").into_bytes();
            is_device(&line) && value(&line, b"uds-path=") == Some(b"/d/vs")
        };
        let vm = "guest-cid=3,uds-path=/d/vs,socket=/d/vhost";
        assert!(of(&["vhost-device-vsock", "--vm", vm]));
        assert!(of(&["/usr/bin/vhost-device-vsock", "--vm", vm]));
        assert!(!of(&["sh", "vhost-device-vsock", vm]));
        assert!(!of(&["vhost-device-vsock", "--vm", "guest-cid=3,uds-path=/d/vs2,socket=/x"]));
        assert!(!of(&["vhost-device-vsock"]) && !of(&[""]));
        assert_eq!(log(vm.as_bytes()), Path::new("/d/vhost.log"));
    }
}
