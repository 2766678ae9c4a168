//! Finds the running agent from another process, and takes over from the agent of an initramfs.
//!
//! In its own namespaces a user can give files and processes any name, including `/run/mote/lock`
//! and an agent's arguments. So only processes in the kernel's list of locks are examined, and of
//! these only root's in this system's namespaces (`processes`).

use std::fmt;
use std::path::Path;

use mote_core::status::view::View;

use crate::built;
use crate::handover::processes::{Handle, Proc, Process, taken};
use crate::handover::{lock_file, view};
use crate::runtime::{log, run_dir};
use crate::transport::Transport;

/// The message if the lock's path no longer leads to the agent's lock.
const HIDDEN: &str = " runs, but /run/mote was mounted over or removed after its start";
/// An agent of this guest in another process.
pub(crate) struct Incumbent {
    pid: u64,
    process: Process,
    why: &'static str,
    /// Whether the agent has started completely and serves the host.
    serves: bool,
}

impl fmt::Display for Incumbent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "process {}{}", self.pid, self.why)
    }
}

/// Returns the process that holds the lock. Only root can open the lock, so its holder is reported
/// even if the agent must not examine other processes.
pub(crate) fn holder(root: &Path) -> Option<Incumbent> {
    if !built::INITRAMFS {
        return None;
    }
    let pid = lock_file::pid(root)?;
    let process = Proc::open(root)?.process(pid)?;
    // The process still holds the lock, so the opened directory belongs to it.
    let is_it = lock_file::pid(root) == Some(pid) && process.is_root();
    let is_started = |view: View<'_>| view.pid == Some(pid) && !view.is_waiting();
    let serves = view::current(root).is_some_and(is_started);
    is_it.then_some(Incumbent { pid, process, why: "", serves })
}

/// Finds an agent whose lock is hidden by a mount.
pub(crate) fn hidden(root: &Path) -> Option<Incumbent> {
    if !built::STATE {
        // The smallest build omits this search, but still renews its lock.
        return None;
    }
    let path = root.join(run_dir::LOCK);
    let proc = Proc::open(root)?;
    let locks = proc.locks();
    let own = proc.own();
    let (mut rest, mut last) = (&*locks, 0);
    while let Some((pid, behind)) = taken(rest) {
        rest = behind;
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
    /// Takes the incumbent's listener and asks it to exit. If it serves the host, calls `prepare`
    /// first. Returns false if it is not an initramfs' agent.
    pub(crate) fn makes_room(&self, transport: &Transport, prepare: &mut dyn FnMut()) -> bool {
        if !built::INITRAMFS {
            return false;
        }
        let Some(handle) = Handle::of(self.pid) else { return false };
        // The pidfd was opened first, and an ended process has no arguments: the id was not reused.
        if !self.process.is_of_initramfs() {
            return false;
        }
        if self.serves {
            prepare();
        }
        log::info(format_args!("taking over from the initramfs' agent, process {}", self.pid));
        // Copies no other descriptor: closing the copy of a file may block on its file system.
        self.process.has_open(&mut |number, link| {
            link.starts_with(b"socket:[") && transport.take_over(&handle, number)
        });
        handle.replace();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::handover::processes::LOCKS;
    use crate::runtime::{Scratch, put, scratch};

    const STATUS: &str = "Name:\tmote-agent\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n";
    const OPEN: &str = "pos:\t0\nflags:\t02100001\nmnt_id:\t27\n";
    const LOCK: &str = "1: POSIX  ADVISORY  WRITE 77 00:1a:2 0 EOF\n";

    fn link(root: &Path, path: &str, to: impl AsRef<Path>) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _other = fs::remove_file(&path);
        symlink(to, path).unwrap();
    }

    /// Creates a guest whose process 77 has a hidden lock.
    fn guest(name: &str) -> Scratch {
        let root = scratch(name);
        let (mnt, user) = (fs::read_link("/proc/self/ns/mnt"), fs::read_link("/proc/self/ns/user"));
        put(&root, "proc/locks", format!("1: FLOCK  ADVISORY  WRITE 5 00:1a:9 0 EOF\n{LOCK}"));
        put(&root, "proc/77/status", STATUS);
        put(&root, "proc/77/fdinfo/3", format!("{OPEN}lock:\t{LOCK}"));
        link(&root, "proc/77/ns/mnt", mnt.unwrap());
        link(&root, "proc/77/ns/user", user.unwrap());
        link(&root, "proc/77/fd/3", root.join(run_dir::LOCK));
        root
    }

    fn found(root: &Path) -> Option<String> {
        hidden(root).map(|it| it.to_string())
    }

    #[test]
    fn finds_an_agent_by_its_lock() {
        let root = guest("found");
        let said = format!("process 77{HIDDEN}");
        assert_eq!(found(&root).as_ref(), Some(&said));
        let deleted = format!("{} (deleted)", root.join(run_dir::LOCK).display());
        link(&root, "proc/77/fd/3", deleted);
        assert_eq!(found(&root).as_ref(), Some(&said));
        // O_LARGEFILE of another architecture, and another descriptor.
        fs::remove_file(root.join("proc/77/fd/3")).unwrap();
        link(&root, "proc/77/fd/12", root.join(run_dir::LOCK));
        put(&root, "proc/77/fdinfo/12", format!("pos:\t0\nflags:\t02400001\nlock:\t{LOCK}"));
        assert_eq!(found(&root), Some(said));
    }

    #[test]
    fn ignores_processes_that_differ_from_an_agent() {
        let status = |uids: &str| STATUS.replace("0\t0\t0\t0\nGid", &format!("{uids}\nGid"));
        let files = [
            ("proc/locks", LOCK.replace("POSIX", "FLOCK")),
            ("proc/locks", LOCK.replace("WRITE", "READ")),
            ("proc/locks", LOCK.replace(": POSIX", ": -> POSIX")),
            ("proc/locks", LOCK.replace("77", "78")),
            ("proc/locks", LOCK.replace("77", "99999999999")),
            ("proc/77/status", status("1000\t1000\t1000\t1000")),
            // A setuid program, and one that has its user's ids.
            ("proc/77/status", status("1000\t0\t0\t0")),
            ("proc/77/status", status("0\t1000\t0\t1000")),
            ("proc/77/status", String::new()),
            ("proc/77/fdinfo/3", OPEN.into()),
            ("proc/77/fdinfo/3", format!("{OPEN}lock:\t{}", LOCK.replace("77", "78"))),
            ("proc/77/fdinfo/3", format!("{OPEN}lock:\t{}", LOCK.replace("WRITE", "READ"))),
            // Descriptors that survive exec(2); the last is a 32-bit program's, opened to append.
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
    fn ignores_too_many_locks() {
        let root = guest("many");
        let many = usize::try_from(LOCKS).unwrap() / LOCK.len();
        put(&root, "proc/locks", LOCK.replace("77", "78").repeat(many - 1));
        assert_eq!(found(&root), None);
        let all = LOCK.replace("77", "78").repeat(many - 1) + LOCK;
        put(&root, "proc/locks", &all);
        assert!(found(&root).is_some());
        put(&root, "proc/locks", &(all + LOCK));
        assert_eq!(found(&root), None);
    }

    #[test]
    fn does_not_signal_a_process_that_reuses_an_id() {
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
