//! The worker that checks the conditions until each has held.

use std::ffi::CStr;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mote_core::ready_when::{Calm, Condition, is_default_level, listens, starts_services};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::stdio::stdin;

use crate::runtime::{is_there, log, text_of};
use crate::sys::file::{self, OFlags};
use crate::sys::{self};
use crate::system::devices::entries;
use crate::system::processes::{ROOT, is_of};
use crate::workers::command;
use crate::workers::report::lines;

/// Interval between checks.
const LOOK: Duration = Duration::from_secs(1);
/// Time limit for a command, after which it is killed and retried.
const COMMAND: Duration = Duration::from_secs(10);
/// Exit code for a missing program.
const MISSING: i32 = 127;

/// Returns success once each condition has held, failure if the agent has closed the socket.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(root: &Path, list: &[String]) -> u8 {
    for next in list {
        let (mut looks, mut pause) = (Looks::default(), Duration::ZERO);
        loop {
            // The agent closes the socket if it ends or the policy changes.
            if sys::readable(stdin(), sys::since_boot() + pause) {
                return 1;
            }
            if looks.hold(root, next) {
                break;
            }
            pause = LOOK;
        }
    }
    0
}

#[derive(Default)]
struct Looks {
    calm: Calm,
    /// Whether a missing program was logged.
    is_missed: bool,
}

impl Looks {
    fn hold(&mut self, root: &Path, text: &str) -> bool {
        let Some(condition) = Condition::parse(text) else { return false };
        let port = match condition {
            Condition::Init => return self.init_is_done(root),
            Condition::CloudInit => return !text_of(root, "run/cloud-init/result.json").is_empty(),
            Condition::Port(port) => port,
            Condition::Socket(path) => return accepts(&root.join(path.trim_start_matches('/'))),
            Condition::Command(words) => return self.ends(words, 0),
        };
        // Line by line, because users can create any number of sockets.
        let is_in = |line: &[u8]| listens(line, port).then_some(());
        let mut tables = ["proc/net/tcp", "proc/net/tcp6"].into_iter();
        tables.any(|table| lines::find(&root.join(table), is_in).is_some())
    }

    fn init_is_done(&mut self, root: &Path) -> bool {
        if is_there(root, "run/systemd/system") {
            // Waits for the end of the boot. Exit code 1 means a failed unit, no answer yet, or
            // emergency or rescue mode, in which basic.target does not run.
            let runs = !self.ends("systemctl is-system-running --wait --quiet", 1)
                || !self.ends("systemctl is-active --quiet basic.target", 0);
            return self.calm.is_done(runs);
        }
        // After an initramfs, systemd may have just started.
        if text_of(root, "proc/1/comm") == "systemd\n" {
            return self.calm.is_done(true);
        }
        let level = text_of(root, "run/openrc/softlevel");
        if !level.is_empty() {
            return is_default_level(&level, is_there(root, "run/openrc/rc.starting"));
        }
        let is_script = |process: &PathBuf| {
            starts_services(text_of(process, "comm").trim_ascii_end()) && is_of(process, ROOT)
        };
        self.calm.is_done(entries(&root.join("proc")).iter().any(is_script))
    }

    /// Returns whether a command ends in time with at most this exit code.
    fn ends(&mut self, words: &str, most: i32) -> bool {
        let whole = words.replace(' ', "\0") + "\0";
        let mut all = Vec::new();
        for word in whole.as_bytes().split_inclusive(|byte| *byte == 0) {
            all.extend(CStr::from_bytes_with_nul(word).ok());
        }
        let nothing = file::open("/dev/null".as_ref(), OFlags::RDWR).map_err(io::Error::from);
        let code = nothing.and_then(|nothing| command::run(&all, nothing.as_fd(), COMMAND));
        let is_missing = match &code {
            Ok(code) => *code == MISSING,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if is_missing && !std::mem::replace(&mut self.is_missed, true) {
            log::warn(format_args!("ready-when: {words}: no such program"));
        }
        code.is_ok_and(|code| code <= most)
    }
}

/// Returns whether a socket at this path accepts connections, without waiting. The kernel's table
/// is not reliable: any user can forge a line in it with a socket whose name contains a line break.
fn accepts(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    [SocketType::STREAM, SocketType::SEQPACKET].into_iter().any(|kind| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None);
        let tried = socket.and_then(|socket| connect(&socket, &address));
        // `EAGAIN` means that its queue is full.
        matches!(tried, Ok(()) | Err(Errno::AGAIN))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;
    use crate::runtime::{put, scratch};

    #[test]
    fn requires_a_socket_that_accepts() {
        let root = scratch("accepts");
        fs::create_dir_all(root.join("run")).unwrap();
        let looks = || Looks::default().hold(&root, "port /run/db");
        assert!(!looks());
        // The socket of a killed database. Any user can forge its line in the table by such a name.
        let path = root.join("run/db");
        drop(UnixListener::bind(&path).unwrap());
        let line = "f: 00000002 00000000 00010000 0001 01 12 /tmp/x\n\
                    f: 00000002 00000000 00010000 0001 01 13 /run/db\n";
        put(&root, "proc/net/unix", line);
        assert!(!looks());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(!looks());
        fs::remove_file(&path).unwrap();
        let datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(!looks());
        drop(datagrams);
        fs::remove_file(&path).unwrap();
        let bound = |kind| {
            let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
            let socket = socket.unwrap();
            rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            socket
        };
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let socket = bound(kind);
            assert!(!looks(), "{kind:?} does not listen");
            rustix::net::listen(&socket, 0).unwrap();
            // The second look finds the queue full.
            assert!(looks() && looks() && looks(), "{kind:?}");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_starting_systemd_has_not_completed_the_boot() {
        let root = scratch("systemd-begins");
        let mut looks = Looks::default();
        put(&root, "proc/1/comm", "systemd\n");
        assert_eq!([0; 3].map(|_| looks.hold(&root, "init")), [false; 3]);
        put(&root, "proc/1/comm", "init\n");
        assert_eq!([0; 2].map(|_| looks.hold(&root, "init")), [false, true]);
    }

    #[test]
    fn does_not_mistake_a_users_process_for_an_init_script() {
        let root = scratch("users-rc");
        put(&root, "proc/77/comm", "rc\n");
        put(&root, "proc/1/comm", "init\n");
        let is_done = |user: &str| {
            put(&root, "proc/77/status", format!("Name:\trc\nUid:\t{user}\t0\n"));
            let mut looks = Looks::default();
            [looks.hold(&root, "init"), looks.hold(&root, "init")]
        };
        assert_eq!(is_done("0"), [false, false]);
        assert_eq!(is_done("1000"), [false, true]);
    }

    #[test]
    fn logs_a_missing_program_once_and_searches_the_path() {
        let mut looks = Looks::default();
        assert!(looks.ends("true", 0) && looks.ends("/bin/sh", 0) && !looks.is_missed);
        for _ in 0..2 {
            assert!(!looks.ends("/nowhere/check", 1) && looks.is_missed);
        }
    }
}
