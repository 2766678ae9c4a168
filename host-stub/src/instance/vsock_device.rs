//! The process that stands in for the kernel's vsock, vhost-device-vsock: what our recipe started ends with the VM or
//! the instance. Others' are theirs.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::store;
use super::{Instance, Vsock};

/// QEMU's way to it, beside the instance.
pub(crate) const DEVICE: &str = "vhost";
/// Locked by the recipe for as long as it runs.
pub(crate) const DEVICE_LOCK: &str = "vhost.lock";
/// Its program.
const PROGRAM: &str = "vhost-device-vsock";

/// Ends the instance's, if our recipe started it; whether there was one.
pub(crate) fn end(root: &Path, instance: &Instance) -> Result<bool> {
    let Vsock::Uds(socket) = &instance.vsock else { return Ok(false) };
    let lock = store::directory(root, &instance.name).join(DEVICE_LOCK);
    match File::open(&lock) {
        // Free: there is none. Not there: another way started it, if any.
        Ok(lock) if lock.try_lock().is_err() => {}
        Ok(_) | Err(_) => return Ok(false),
    }
    // Who listens there is it.
    let Ok(connected) = UnixStream::connect(socket) else { return Ok(false) };
    let pid = socket_peercred(connected.as_fd())?.pid;
    let process = pidfd_open(pid, PidfdFlags::empty()).context(PROGRAM)?;
    // The number cannot become another process' from here on.
    if !is_it(pid, socket) {
        return Ok(false);
    }
    pidfd_send_signal(&process, Signal::TERM).context(PROGRAM)?;
    Ok(true)
}

/// Whether that process is one for this socket.
fn is_it(pid: Pid, socket: &Path) -> bool {
    let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
    line.is_ok_and(|line| says_so(&line, socket))
}

fn says_so(line: &[u8], socket: &Path) -> bool {
    let mut words = line.split(|byte| *byte == 0);
    let name = words.next().and_then(|program| program.rsplit(|byte| *byte == b'/').next());
    let way = [b"uds-path=", socket.as_os_str().as_bytes()].concat();
    name == Some(PROGRAM.as_bytes())
        && words.any(|word| word.split(|byte| *byte == b',').any(|part| part == way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_program_with_this_socket_is_it() {
        let socket = Path::new("/d/vs");
        let of = |words: &[&str]| says_so(words.join("\0").as_bytes(), socket);
        let vm = "guest-cid=3,uds-path=/d/vs,socket=/d/vhost";
        assert!(of(&["vhost-device-vsock", "--vm", vm]));
        assert!(of(&["/usr/bin/vhost-device-vsock", "--vm", vm]));
        assert!(!of(&["sh", "vhost-device-vsock", vm]));
        assert!(!of(&["vhost-device-vsock", "--vm", "guest-cid=3,uds-path=/d/vs2,socket=/x"]));
        assert!(!of(&["vhost-device-vsock"]) && !of(&[""]));
    }
}
