//! Other processes of the guest, as `/proc` shows them to root, and their locks.
//!
//! Of a process that is not root's nothing is touched that may wait: its open files may be on a file system of its own,
//! which answers when it likes.

use std::ffi::CStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use mote_core::report::proc::number;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, readlinkat_raw};
use rustix::path::DecInt;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::guest_path::is_private;
use crate::handover::reexec::REMOVED;
use crate::runtime::small_files::read_to_end;
use crate::sys::listener::NUMBERS;
use crate::system::processes::{after, users};

/// Longest list of locks, bytes: 5,000, where a guest has some dozens. The kernel walks all of it for each page.
pub(super) const LOCKS: u64 = 256 * 1024;
/// Longest text about a process, bytes: `status` has its groups, up to 65,536.
const MAX_PROC_FILE: u64 = 1024 * 1024;
/// Longest link that is told apart from others, bytes.
const LINK: usize = 256;
/// How the kernel shows such a lock, in `/proc/locks` and `fdinfo`; who waits for one has "->" before it.
const LOCKED: &str = ": POSIX  ADVISORY  WRITE ";

/// A process by a descriptor of its own, which no other process can have later.
pub(crate) struct Handle(OwnedFd);

impl Handle {
    pub(super) fn of(pid: u64) -> Option<Self> {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        pidfd_open(id, PidfdFlags::empty()).ok().map(Self)
    }

    /// Asks it to make room.
    pub(super) fn replace(&self) {
        let _ended = pidfd_send_signal(&self.0, Signal::USR1);
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Process of the first such lock, and what is behind it: "1: POSIX  ADVISORY  WRITE 77 00:1a:2 0 EOF".
#[inline(never)] // its size
pub(super) fn taken(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = after(text, LOCKED)?;
    let (pid, rest) = text.split_at(text.iter().position(|byte| *byte == b' ')?);
    Some((number(pid)?, rest))
}

/// `/proc`.
pub(crate) struct Proc(OwnedFd);

impl Proc {
    #[inline(never)] // its size
    pub(crate) fn open(root: &Path) -> Option<Self> {
        File::open(root.join("proc")).ok().map(|directory| Self(directory.into()))
    }

    #[inline(never)] // its size
    pub(crate) fn process(&self, pid: u64) -> Option<Process> {
        open(&self.0, DecInt::new(pid).as_c_str()).ok().map(Process)
    }

    /// This process's id, as this `/proc` has it, which may be that of another namespace of processes.
    pub(super) fn own(&self) -> Option<u64> {
        number(link(self.0.as_fd(), c"self", &mut { SPACE }))
    }

    /// All locks. Too many are as none: an agent that is not found keeps no other one from starting.
    pub(super) fn locks(&self) -> Vec<u8> {
        text(&self.0, c"locks", LOCKS)
    }
}

/// A process's directory in `/proc`: of the same process always, and empty after its end.
#[derive(Debug)]
pub(crate) struct Process(OwnedFd);

impl Process {
    /// Whether it is root's, in this one's namespaces: in others, other files may have the same names. Never waits, and costs
    /// little, whatever the process does.
    #[inline(never)] // its size
    pub(crate) fn is_roots_here(&self) -> bool {
        let is_shared = |kind, ours| {
            let (mut theirs, mut own) = (SPACE, SPACE);
            let theirs = link(self.0.as_fd(), kind, &mut theirs);
            !theirs.is_empty() && theirs == link(CWD, ours, &mut own)
        };
        // The directory's owner is the effective user, which is cheaper to see and leaves few to be looked at.
        fstat(&self.0).is_ok_and(|about| is_private(&about))
            && is_shared(c"ns/mnt", c"/proc/self/ns/mnt")
            && is_shared(c"ns/user", c"/proc/self/ns/user")
            && self.is_root()
    }

    /// Whether root, or the sandbox's user, is both its effective user and its real one, which is another in a program with
    /// the setuid bit.
    #[inline(never)] // its size
    pub(super) fn is_root(&self) -> bool {
        let status = text(&self.0, c"status", MAX_PROC_FILE);
        let users = users(&status);
        users.starts_with(b"0\t0\t") || users.starts_with(b"65530\t65530\t")
    }

    /// Whether root gave it the option of an agent in an initramfs.
    pub(super) fn is_of_initramfs(&self) -> bool {
        after(&text(&self.0, c"cmdline", MAX_PROC_FILE), "-initramfs\0").is_some()
    }

    /// Its name.
    pub(crate) fn name(&self) -> Vec<u8> {
        text(&self.0, c"comm", MAX_PROC_FILE)
    }

    /// Whether it is root's, and has a lock of this name, wherever that is.
    pub(super) fn has_lock(&self, pid: u64, path: &[u8]) -> bool {
        let is_lock = |number, link: &[u8]| {
            let rest = link.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest == REMOVED.as_bytes())
                && self.has_locked(pid, number)
        };
        self.is_roots_here() && self.has_open(&mut { is_lock })
    }

    /// Whether it has locked this open file, and opened it as an agent does, to be closed by exec(2): a user's file in a setuid
    /// program of his choice can be locked, but without that flag.
    fn has_locked(&self, pid: u64, number: RawFd) -> bool {
        let Ok(about) = open(&self.0, c"fdinfo") else { return false };
        let about = text(&about, DecInt::new(number).as_c_str(), MAX_PROC_FILE);
        // The first of seven octal digits.
        about.strip_prefix(b"pos:\t0\nflags:\t02").is_some_and(|flags| flags.get(6) == Some(&b'\n'))
            && taken(&about).is_some_and(|(holder, _)| holder == pid)
    }

    /// Shows `is_it` the first open files, each with its link, until it is one; whether there was one. An agent's lock and
    /// listener are among them: it opens them before it serves anybody.
    #[inline(never)] // its size
    pub(crate) fn has_open(&self, is_it: &mut dyn FnMut(RawFd, &[u8]) -> bool) -> bool {
        let Ok(files) = open(&self.0, c"fd") else { return false };
        (0..3).chain(NUMBERS).any(|number| {
            is_it(number, link(files.as_fd(), DecInt::new(number).as_c_str(), &mut { SPACE }))
        })
    }
}

#[inline(never)] // its size
fn open(at: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    openat(at, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// A text of the kernel's; empty if it cannot be read.
#[inline(never)] // its size
fn text(at: &OwnedFd, name: &CStr, most: u64) -> Vec<u8> {
    let Ok(file) = open(at, name) else { return Vec::new() };
    read_to_end(file.as_fd(), most).unwrap_or_default()
}

/// Room for a link.
const SPACE: [MaybeUninit<u8>; LINK] = [MaybeUninit::uninit(); LINK];

/// Where a symbolic link of the kernel's leads; empty if there is none.
#[inline(never)] // its size
fn link<'a>(at: BorrowedFd<'_>, name: &CStr, space: &'a mut [MaybeUninit<u8>]) -> &'a [u8] {
    readlinkat_raw(at, name, space).map_or(&[], |(link, _)| link)
}
