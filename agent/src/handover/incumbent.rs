//! The agent that runs already, as another one sees it: who it is, and how one takes over from that of an initramfs.
//!
//! In namespaces of his own a user of the guest gives files and processes any name: his tmpfs on `/run` has a
//! `/run/mote/lock` too, and his program has an agent's words. So the kernel's list of locks says who is looked at, and
//! nobody but root's processes of this system is looked at further. Of any other nothing is touched that may wait: its
//! open files may be on a file system of its own, which answers when it likes.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use mote_core::report::proc::number;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, readlinkat_raw};
use rustix::path::DecInt;
use rustix::process::{
    Flock, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, pidfd_open, pidfd_send_signal,
};

use crate::built;
use crate::guest_path::is_private;
use crate::handover::reexec::REMOVED;
use crate::handover::view;
use crate::runtime::small_files::read_to_end;
use crate::runtime::{log, run_dir};
use crate::sys::listener::NUMBERS;
use crate::transport::Transport;

/// Longest list of locks, bytes: 5,000, where a guest has some dozens. The kernel walks all of it for each page.
const LOCKS: u64 = 256 * 1024;
/// Longest text about a process, bytes: `status` has its groups, up to 65,536.
const MAX_PROC_FILE: u64 = 1024 * 1024;
/// Longest link that is told apart from others, bytes.
const LINK: usize = 256;
/// What is said of an agent whose lock is not the one found by its name.
const HIDDEN: &str = " runs, but /run/mote was mounted over or removed after its start";
/// How the kernel shows such a lock, in `/proc/locks` and `fdinfo`; who waits for one has "->" before it.
const LOCKED: &str = ": POSIX  ADVISORY  WRITE ";

/// An agent of this guest in another process.
#[derive(Debug)]
pub(crate) struct Incumbent {
    pid: u64,
    process: Process,
    /// What is to be said of its lock.
    why: &'static str,
    /// Whether it is past its own start, and so serves the host.
    serves: bool,
}

impl fmt::Display for Incumbent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "process {}{}", self.pid, self.why)
    }
}

/// Another process's lock.
///
/// # Errors
/// Any error of open(2): there may be no file.
#[inline(never)] // its size
pub(super) fn held(root: &Path) -> io::Result<Option<Flock>> {
    let file = File::open(root.join(run_dir::LOCK))?;
    Ok(fcntl_getlk(&file, &FlockType::WriteLock.into())?)
}

/// The process that has the lock, if that is in this namespace of processes.
pub(super) fn pid(root: &Path) -> Option<u64> {
    u64::try_from(held(root).ok()??.pid?.as_raw_nonzero().get()).ok()
}

/// The process that has the lock, which this one did not get: nobody but root can have opened it. This is told also where
/// an agent may not look into other processes.
#[inline(never)] // its size
pub(crate) fn holder(root: &Path) -> Option<Incumbent> {
    if !built::INITRAMFS {
        return None;
    }
    let pid = pid(root)?;
    let process = Proc::open(root)?.process(pid)?;
    // It still has it, so that it is the one whose directory was opened.
    let is_it = self::pid(root) == Some(pid) && process.is_root();
    let serves = view::writer(root) == Some((pid, true));
    is_it.then_some(Incumbent { pid, process, why: "", serves })
}

/// An agent that took a lock of this name where it is not found by its name now.
#[inline(never)] // its size
pub(crate) fn hidden(root: &Path) -> Option<Incumbent> {
    if !built::STATE {
        // Left out of the smallest build to save bytes; it still takes its lock again.
        return None;
    }
    let path = root.join(run_dir::LOCK);
    let proc = Proc::open(root)?;
    let locks = proc.locks();
    // As this `/proc` has it, which may be that of another namespace of processes.
    let own = number(link(proc.0.as_fd(), c"self", &mut { SPACE }));
    let (mut rest, mut last) = (&*locks, 0);
    while let Some((pid, behind)) = taken(rest) {
        rest = behind;
        // One process may have any number of locks.
        if std::mem::replace(&mut last, pid) != pid
            && Some(pid) != own
            && let Some(process) = proc.process(pid)
            && process.has_lock(pid, path.as_os_str().as_encoded_bytes())
        {
            return Some(Incumbent { pid, process, why: HIDDEN, serves: false });
        }
    }
    None
}

impl Incumbent {
    /// Takes over its listener and asks it to make room, after `prepare` if it serves the host until then; false if it is
    /// not of an initramfs.
    pub(crate) fn makes_room(&self, transport: &Transport, prepare: &mut dyn FnMut()) -> bool {
        let Some(id) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        if !built::INITRAMFS {
            return false;
        }
        let Ok(fd) = pidfd_open(id, PidfdFlags::empty()) else { return false };
        // An option that root gave it. It is read after the descriptor is there, and would be empty after its end: nobody else
        // has had its number.
        if after(&text(&self.process.0, c"cmdline", MAX_PROC_FILE), "-initramfs\0").is_none() {
            return false;
        }
        if self.serves {
            prepare();
        }
        log::info(format_args!("taking over from the initramfs' agent, process {}", self.pid));
        // Nothing else is copied: to drop a copy of a file may mean to wait for its file system.
        self.process.has_open(&mut |number, link| {
            link.starts_with(b"socket:[") && transport.take_over(&fd, number)
        });
        let _ended = pidfd_send_signal(&fd, Signal::USR1);
        true
    }
}

/// Process of the first such lock, and what is behind it: "1: POSIX  ADVISORY  WRITE 77 00:1a:2 0 EOF".
#[inline(never)] // its size
fn taken(text: &[u8]) -> Option<(u64, &[u8])> {
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

    /// All locks. Too many are as none: an agent that is not found keeps no other one from starting.
    fn locks(&self) -> Vec<u8> {
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
    fn is_root(&self) -> bool {
        let status = text(&self.0, c"status", MAX_PROC_FILE);
        let users = after(&status, "\nUid:\t").unwrap_or_default();
        users.starts_with(b"0\t0\t") || users.starts_with(b"65530\t65530\t")
    }

    /// Its name.
    pub(crate) fn name(&self) -> Vec<u8> {
        text(&self.0, c"comm", MAX_PROC_FILE)
    }

    /// Whether it is root's, and has a lock of this name, wherever that is.
    fn has_lock(&self, pid: u64, path: &[u8]) -> bool {
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

/// What is behind the first such part.
#[inline(never)] // its size
fn after<'a>(text: &'a [u8], part: &str) -> Option<&'a [u8]> {
    let at = text.windows(part.len()).position(|there| there == part.as_bytes())?;
    text.get(at + part.len()..)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::runtime::scratch::{Scratch, scratch};

    const STATUS: &str = "Name:\tmote-agent\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n";
    const OPEN: &str = "pos:\t0\nflags:\t02100001\nmnt_id:\t27\n";
    const LOCK: &str = "1: POSIX  ADVISORY  WRITE 77 00:1a:2 0 EOF\n";

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(root: &Path, path: &str, to: impl AsRef<Path>) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _other = fs::remove_file(&path);
        symlink(to, path).unwrap();
    }

    /// A guest whose process 77 has a lock that is hidden by now.
    fn guest(name: &str) -> Scratch {
        let root = scratch(name);
        let (mnt, user) = (fs::read_link("/proc/self/ns/mnt"), fs::read_link("/proc/self/ns/user"));
        put(&root, "proc/locks", &format!("1: FLOCK  ADVISORY  WRITE 5 00:1a:9 0 EOF\n{LOCK}"));
        put(&root, "proc/77/status", STATUS);
        put(&root, "proc/77/fdinfo/3", &format!("{OPEN}lock:\t{LOCK}"));
        link(&root, "proc/77/ns/mnt", mnt.unwrap());
        link(&root, "proc/77/ns/user", user.unwrap());
        link(&root, "proc/77/fd/3", root.join(run_dir::LOCK));
        root
    }

    fn found(root: &Path) -> Option<String> {
        hidden(root).map(|it| it.to_string())
    }

    #[test]
    fn an_agent_is_found_by_its_lock() {
        let root = guest("found");
        let said = format!("process 77{HIDDEN}");
        assert_eq!(found(&root).as_ref(), Some(&said));
        let deleted = format!("{} (deleted)", root.join(run_dir::LOCK).display());
        link(&root, "proc/77/fd/3", deleted);
        assert_eq!(found(&root).as_ref(), Some(&said));
        // Another system's number of the flag O_LARGEFILE, and another descriptor.
        fs::remove_file(root.join("proc/77/fd/3")).unwrap();
        link(&root, "proc/77/fd/12", root.join(run_dir::LOCK));
        put(&root, "proc/77/fdinfo/12", &format!("pos:\t0\nflags:\t02400001\nlock:\t{LOCK}"));
        assert_eq!(found(&root), Some(said));
    }

    #[test]
    fn whatever_is_not_as_of_an_agent_is_none() {
        let status = |uids: &str| STATUS.replace("0\t0\t0\t0\nGid", &format!("{uids}\nGid"));
        let files = [
            ("proc/locks", LOCK.replace("POSIX", "FLOCK")),
            ("proc/locks", LOCK.replace("WRITE", "READ")),
            ("proc/locks", LOCK.replace(": POSIX", ": -> POSIX")),
            ("proc/locks", LOCK.replace("77", "78")),
            ("proc/locks", LOCK.replace("77", "99999999999")),
            ("proc/77/status", status("1000\t1000\t1000\t1000")),
            // A setuid program, and one that shows its user's rights.
            ("proc/77/status", status("1000\t0\t0\t0")),
            ("proc/77/status", status("0\t1000\t0\t1000")),
            ("proc/77/status", String::new()),
            ("proc/77/fdinfo/3", OPEN.into()),
            ("proc/77/fdinfo/3", format!("{OPEN}lock:\t{}", LOCK.replace("77", "78"))),
            ("proc/77/fdinfo/3", format!("{OPEN}lock:\t{}", LOCK.replace("WRITE", "READ"))),
            // Open over exec(2); the last is as of a 32-bit program that appends.
            ("proc/77/fdinfo/3", format!("pos:\t0\nflags:\t0100001\nlock:\t{LOCK}")),
            ("proc/77/fdinfo/3", format!("pos:\t0\nflags:\t02001\nmnt_id:\t27\nlock:\t{LOCK}")),
        ];
        for (path, text) in files {
            let root = guest("not-found");
            put(&root, path, &text);
            assert_eq!(found(&root), None, "{path}: {text}");
        }
        let links = [
            ("proc/77/ns/mnt", "mnt:[1]"),
            ("proc/77/ns/user", "user:[1]"),
            ("proc/77/fd/3", "/run/mote/lock"),
            ("proc/77/fd/3", "socket:[1]"),
            ("proc/self", "77"),
        ];
        for (path, to) in links {
            let root = guest("not-found");
            link(&root, path, to);
            assert_eq!(found(&root), None, "{path}: {to}");
            fs::remove_file(root.join(path)).unwrap();
            assert_eq!(found(&root).is_some(), path == "proc/self", "no {path}");
        }
    }

    #[test]
    fn too_many_locks_are_as_none() {
        let root = guest("many");
        let many = usize::try_from(LOCKS).unwrap() / LOCK.len();
        put(&root, "proc/locks", &LOCK.replace("77", "78").repeat(many - 1));
        assert_eq!(found(&root), None);
        let all = LOCK.replace("77", "78").repeat(many - 1) + LOCK;
        put(&root, "proc/locks", &all);
        assert!(found(&root).is_some());
        put(&root, "proc/locks", &(all + LOCK));
        assert_eq!(found(&root), None);
    }

    #[test]
    fn what_was_found_of_a_process_is_not_done_to_another_with_its_number() {
        let mut child = Command::new("sh").args(["-c", "read x", "--initramfs"]).spawn().unwrap();
        let pid = child.id().into();
        let process = Proc::open(Path::new("/")).unwrap().process(pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = Incumbent { pid, process, why: "", serves: true };
        let transport = Transport::Unix("/nowhere".into());
        assert!(!gone.makes_room(&transport, &mut || panic!("it is gone")));
    }
}
