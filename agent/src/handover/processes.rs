//! Other processes of the guest and their locks, as `/proc` shows them to root.
//!
//! Never touches what may block in other users' processes: their open files may be on their own
//! file system, which may never answer.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use mote_core::report::proc::number;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, readlinkat_raw};
use rustix::path::DecInt;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::guest_path::is_private;
use crate::runtime::read_to_end;
use crate::sys::file;
use crate::sys::listener::NUMBERS;
use crate::system::processes::{after, users};

/// Maximum size of the list of locks, in bytes: 5,000 locks; a guest has a few dozen. The kernel
/// walks the whole list for each page.
pub(super) const LOCKS: u64 = 256 * 1024;
/// Maximum size of a text about a process, in bytes: `status` has its groups, up to 65,536.
const MAX_PROC_FILE: u64 = 1024 * 1024;
const LINK: usize = 256;
/// The kernel's text for an agent's lock in `/proc/locks` and `fdinfo`, after "->" for a waiter.
const LOCKED: &str = ": POSIX  ADVISORY  WRITE ";

/// A pidfd, which still refers to the same process if the id is reused.
pub(crate) struct Handle(OwnedFd);

impl Handle {
    pub(super) fn of(pid: u64) -> Option<Self> {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        pidfd_open(id, PidfdFlags::empty()).ok().map(Self)
    }

    pub(super) fn replace(&self) {
        let _ended = pidfd_send_signal(&self.0, Signal::USR1);
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the holder of the first lock like an agent's, and the rest of the text. A line is
/// "1: POSIX  ADVISORY  WRITE 77 00:1a:2 0 EOF".
pub(super) fn taken(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = after(text, LOCKED)?;
    let (pid, rest) = text.split_at(text.iter().position(|byte| *byte == b' ')?);
    Some((number(pid)?, rest))
}

pub(crate) struct Proc(OwnedFd);

impl Proc {
    pub(crate) fn open(root: &Path) -> Option<Self> {
        file::open(&root.join("proc"), OFlags::RDONLY).ok().map(|directory| Self(directory.into()))
    }

    pub(crate) fn process(&self, pid: u64) -> Option<Process> {
        open(&self.0, DecInt::new(pid).as_c_str()).ok().map(Process)
    }

    /// Returns this process's id in this `/proc`, which may be of another pid namespace.
    pub(super) fn own(&self) -> Option<u64> {
        number(link(self.0.as_fd(), c"self", &mut { SPACE }))
    }

    /// Returns the list of locks, empty if too long; a hidden agent then does not prevent a start.
    pub(super) fn locks(&self) -> Vec<u8> {
        text(&self.0, c"locks", LOCKS)
    }
}

/// A process's directory in `/proc`. It never refers to another process, and is empty after the
/// process's end.
pub(crate) struct Process(OwnedFd);

impl Process {
    /// Returns whether the process is root's and in this process's namespaces; elsewhere the same
    /// names may mean other files. Never blocks.
    pub(crate) fn is_roots_here(&self) -> bool {
        let is_shared = |kind, ours| {
            let (mut theirs, mut own) = (SPACE, SPACE);
            let theirs = link(self.0.as_fd(), kind, &mut theirs);
            !theirs.is_empty() && theirs == link(CWD, ours, &mut own)
        };
        // The directory's owner is the effective user. This cheap check excludes most processes.
        fstat(&self.0).is_ok_and(|about| is_private(&about))
            && is_shared(c"ns/mnt", c"/proc/self/ns/mnt")
            && is_shared(c"ns/user", c"/proc/self/ns/user")
            && self.is_root()
    }

    /// Returns whether effective and real user are both root or the sandbox's user. In a setuid
    /// program they differ.
    pub(super) fn is_root(&self) -> bool {
        let status = text(&self.0, c"status", MAX_PROC_FILE);
        let users = users(&status);
        users.starts_with(b"0\t0\t") || users.starts_with(b"65530\t65530\t")
    }

    pub(super) fn is_of_initramfs(&self) -> bool {
        after(&text(&self.0, c"cmdline", MAX_PROC_FILE), "-initramfs\0").is_some()
    }

    pub(crate) fn name(&self) -> Vec<u8> {
        text(&self.0, c"comm", MAX_PROC_FILE)
    }

    /// Returns whether the process is root's and has locked a file with this name, in any mount.
    pub(super) fn has_lock(&self, pid: u64, path: &[u8]) -> bool {
        let is_lock = |number, link: &[u8]| {
            let rest = link.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest == file::REMOVED.as_bytes())
                && self.has_locked(pid, number)
        };
        self.is_roots_here() && self.has_open(&mut { is_lock })
    }

    /// Returns whether the process locked this file and opened it with O_CLOEXEC like an agent. A
    /// user can pass a locked file to a setuid program, but not with that flag.
    fn has_locked(&self, pid: u64, number: RawFd) -> bool {
        let Ok(about) = open(&self.0, c"fdinfo") else { return false };
        let about = text(&about, DecInt::new(number).as_c_str(), MAX_PROC_FILE);
        // O_CLOEXEC is the first of seven octal digits.
        about.strip_prefix(b"pos:\t0\nflags:\t02").is_some_and(|flags| flags.get(6) == Some(&b'\n'))
            && taken(&about).is_some_and(|(holder, _)| holder == pid)
    }

    /// Passes the first open files and their links to `is_it` until it accepts one; returns whether
    /// it did. They include an agent's lock and listener, which it opens before it serves clients.
    pub(crate) fn has_open(&self, is_it: &mut dyn FnMut(RawFd, &[u8]) -> bool) -> bool {
        let Ok(files) = open(&self.0, c"fd") else { return false };
        (0..3).chain(NUMBERS).any(|number| {
            is_it(number, link(files.as_fd(), DecInt::new(number).as_c_str(), &mut { SPACE }))
        })
    }
}

fn open(at: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    openat(at, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Reads a kernel file; empty if it cannot be read.
fn text(at: &OwnedFd, name: &CStr, most: u64) -> Vec<u8> {
    let Ok(file) = open(at, name) else { return Vec::new() };
    read_to_end(file.as_fd(), most).unwrap_or_default()
}

const SPACE: [MaybeUninit<u8>; LINK] = [MaybeUninit::uninit(); LINK];

/// Reads a symbolic link in `/proc`; returns nothing if it cannot.
fn link<'a>(at: BorrowedFd<'_>, name: &CStr, space: &'a mut [MaybeUninit<u8>]) -> &'a [u8] {
    readlinkat_raw(at, name, space).map_or(&[], |(link, _)| link)
}
