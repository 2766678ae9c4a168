//! One agent at a time: a file lock that ends with its process. Files of an earlier boot are removed.
//!
//! It is a record lock (fcntl(2)): the kernel tells who has it, and no child inherits it. A process loses it when it closes
//! any descriptor of the file, which nothing in the agent's process but this opens.
//!
//! An initramfs may start the agent before the final `/run` is mounted; the mount then hides the lock
//! file. The agent takes the lock again in the new `/run` ([`Lock::keep`]). Until then other processes
//! find the agent by its open file in `/proc` (`incumbent`).

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FlockOperation, access, fcntl_lock, stat};
use rustix::io::Errno;

use crate::guest_path::is_roots_alone;
use crate::handover::incumbent;
use crate::handover::incumbent::Incumbent;
use crate::runtime::clock::look_for;
use crate::runtime::run_dir::unwritable;
use crate::runtime::small_files::{make_directory, read_bounded};
use crate::runtime::{log, run_dir};
use crate::transport::Transport;

/// Message for a second agent.
const ANOTHER: &str = "another mote-agent is running";

/// Why it cannot be seen if an agent runs.
const BLIND: &str = "/run is read-only: mount a tmpfs there";
const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
/// Longest time for an agent of an initramfs to make room.
const REPLACED: Duration = Duration::from_secs(5);

/// The agent's lock, held as long as the agent runs.
#[derive(Debug)]
pub(crate) struct Lock {
    /// Kept open: closing it releases the lock. `None` while `/run` is read-only.
    file: Option<File>,
    path: PathBuf,
    id: Id,
}

/// Device and inode number of the lock file.
type Id = (u64, u64);

/// Why the lock is not this agent's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Another agent has it: the words for that, with as much of it as is known.
    Another(String),
    /// Directory or file cannot be made or locked, or is not to be trusted: the kind, the words, and what to do.
    Refused(ErrorKind, String),
}

impl fmt::Display for LockError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Another(why) | Self::Refused(_, why)) = self;
        out.write_str(why)
    }
}

/// Result of [`Lock::keep`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The lock file is still the one found by its name.
    Same,
    /// The lock was taken again in a new directory; the files beside it are missing there.
    Anew,
    /// The lock could not be taken again, with the reason.
    Lost(LockError),
}

impl Lock {
    /// Releases the lock, for an agent that takes over.
    pub(crate) fn release(&mut self) {
        self.file = None;
    }

    /// Takes the lock again if its file is no longer the one found by its name. Never waits.
    #[inline(never)] // its size
    pub(crate) fn keep(&mut self, root: &Path) -> Kept {
        if id(&self.path) == Some(self.id) {
            return Kept::Same;
        }
        match take(root) {
            Ok(Some(lock)) => {
                *self = lock;
                // Had it been the same file all the time, closing it would have ended the lock.
                let _locked = self.file.as_ref().map(|file| fcntl_lock(file, EXCLUSIVE));
                Kept::Anew
            }
            Ok(None) => Kept::Lost(another(root)),
            // Said at start.
            Err(LockError::Refused(ErrorKind::ReadOnlyFilesystem, _)) if self.file.is_none() => {
                Kept::Same
            }
            Err(why) => Kept::Lost(why),
        }
    }
}

/// Takes the lock; creates `/run/mote` if it is missing. On a read-only `/run` the agent goes on without it. An agent
/// that an initramfs has started makes room for one that `takes_over`, with its listener of this transport; it serves the
/// host until `prepare` has returned.
///
/// # Errors
/// Another agent runs, or directory or file cannot be created or locked.
pub(crate) fn acquire(
    root: &Path,
    takes_over: Option<&Transport>,
    prepare: &mut dyn FnMut(),
) -> Result<Lock, LockError> {
    let mut lock = take(root).transpose();
    let other = if lock.is_some() { incumbent::hidden(root) } else { incumbent::holder(root) };
    if let Some(other) = other {
        if !takes_over.is_some_and(|transport| other.makes_room(transport, prepare)) {
            return Err(LockError::Another(format!("{ANOTHER}: {other}")));
        }
        // It closes all that it listens on before the lock.
        let gone = || incumbent::hidden(root).is_none().then_some(());
        match lock {
            None => lock = look_for(REPLACED, || take(root).transpose()),
            Some(_) => drop(look_for(REPLACED, gone)),
        }
    }
    let lock = match lock.transpose() {
        Ok(lock) => lock.ok_or_else(|| another(root))?,
        Err(LockError::Refused(ErrorKind::ReadOnlyFilesystem, why)) => {
            log::warn(format_args!("{why}; until then no second agent is noticed"));
            Lock { file: None, path: root.join(run_dir::LOCK), id: Id::default() }
        }
        Err(why) => return Err(why),
    };
    // A status file left here is that of an agent that has ended, and an agent in the sandbox is not believed.
    let _none = std::fs::remove_file(root.join(run_dir::STATUS));
    let hanging = root.join(run_dir::HANGING);
    if !is_roots_alone(&hanging) {
        let _none = std::fs::remove_file(hanging);
    }
    Ok(lock)
}

/// Takes the lock; `None` if another process has it.
///
/// # Errors
/// [`LockError::Refused`] if something cannot be made, opened or locked.
#[inline(never)] // its size
fn take(root: &Path) -> Result<Option<Lock>, LockError> {
    let path = root.join(run_dir::LOCK);
    let refused = |verb, path: &Path, error: io::Error| {
        LockError::Refused(error.kind(), unwritable(verb, path, &error))
    };
    if let Some(directory) = path.parent() {
        make_directory(directory).map_err(|error| refused("make", directory, error))?;
        if !is_roots_alone(directory) {
            let text =
                format!("{}: others than root can change it; remove it", directory.display());
            return Err(LockError::Refused(ErrorKind::PermissionDenied, text));
        }
    }
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| refused("write", &path, error))?;
    match fcntl_lock(&file, EXCLUSIVE) {
        Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
        locked => locked.map_err(|error| refused("lock", &path, error.into()))?,
    }
    forget(root);
    let id = id(&path).unwrap_or_default();
    Ok(Some(Lock { file: Some(file), path, id }))
}

#[inline(never)] // its size
fn id(path: &Path) -> Option<Id> {
    stat(path).ok().map(|about| (about.st_dev, about.st_ino))
}

/// A lock held elsewhere, with the process that has it.
#[inline(never)] // its size
fn another(root: &Path) -> LockError {
    LockError::Another(match incumbent::pid(root) {
        Some(pid) => format!("{ANOTHER}: process {pid}"),
        None => ANOTHER.into(),
    })
}

/// Removes an agent's files of an earlier boot: not every guest has its `/run` in memory.
fn forget(root: &Path) {
    // Without a boot id, their age is unknown and they are kept.
    let Ok(boot) = read_bounded(&root.join("proc/sys/kernel/random/boot_id"), 64) else { return };
    let path = root.join(run_dir::BOOT);
    if read_bounded(&path, 64).is_ok_and(|noted| noted == boot) {
        return;
    }
    for path in [run_dir::READY, run_dir::HANGING, run_dir::KNOWN_HOST, run_dir::FOLLOWED] {
        let _none = std::fs::remove_file(root.join(path));
    }
    if let Err(error) = std::fs::write(&path, boot) {
        log::debug(format_args!("cannot write {}: {error}", path.display()));
    }
}

/// Result of [`running`].
#[derive(Debug)]
pub(crate) enum Running {
    Yes,
    /// An agent runs, but its files are hidden at the moment.
    Hidden(Incumbent),
    No,
    /// The lock cannot be opened: the reason, and what to do.
    Unknown(String),
}

/// Looks for a running agent by its lock.
#[inline(never)] // its size
pub(crate) fn running(root: &Path) -> Running {
    match incumbent::held(root) {
        Ok(Some(_)) => Running::Yes,
        // An agent goes on without a lock there.
        Err(_) if access(root.join("run"), Access::WRITE_OK) == Err(Errno::ROFS) => {
            Running::Unknown(BLIND.into())
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let path = root.join(run_dir::LOCK);
            Running::Unknown(format!("cannot open {}: {error}; ask as root", path.display()))
        }
        Ok(None) | Err(_) => incumbent::hidden(root).map_or(Running::No, Running::Hidden),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts what another process sees.
    fn another_process(sees: &dyn Fn() -> bool) {
        assert!(crate::sys::run_in_fork(Duration::from_secs(30), sees));
    }

    fn refusal(root: &Path) -> Option<String> {
        acquire(root, None, &mut || ()).err().map(|why| why.to_string())
    }

    #[test]
    fn ready_is_forgotten_at_the_next_boot() {
        let root = crate::runtime::scratch::scratch("forget");
        let (random, ready) = (root.join("proc/sys/kernel/random"), root.join("run/mote/ready"));
        std::fs::create_dir_all(&random).unwrap();
        // Boot id, and whether Ready is still known when the next agent has started.
        for (boot, known) in [("a\n", false), ("a\n", true), ("b\n", false), ("b\n", true)] {
            std::fs::write(random.join("boot_id"), boot).unwrap();
            drop(acquire(&root, None, &mut || ()).unwrap());
            assert_eq!(ready.exists(), known, "{boot}");
            std::fs::write(&ready, "Ready").unwrap();
        }
    }

    #[test]
    fn what_others_could_write_is_not_believed() {
        let root = crate::runtime::scratch::scratch("believed");
        drop(acquire(&root, None, &mut || ()).unwrap());
        let hanging = root.join(run_dir::HANGING);
        for (mode, is_kept) in [(0o600, true), (0o660, false)] {
            std::fs::write(&hanging, "1 /a\n").unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&hanging, mode).unwrap();
            drop(acquire(&root, None, &mut || ()).unwrap());
            assert_eq!(hanging.exists(), is_kept);
        }
    }

    #[test]
    fn a_lock_whose_file_is_gone_is_taken_anew() {
        let root = crate::runtime::scratch::scratch("gone");
        let mut lock = acquire(&root, None, &mut || ()).unwrap();
        assert_eq!(lock.keep(&root), Kept::Same);
        let hide = |name: &str| std::fs::rename(root.join("run"), root.join(name)).unwrap();
        hide("first");
        another_process(&|| matches!(running(&root), Running::No));
        assert_eq!(lock.keep(&root), Kept::Anew);
        assert_eq!(lock.keep(&root), Kept::Same);
        another_process(&|| matches!(running(&root), Running::Yes));
        hide("second");
        let lock = std::cell::RefCell::new(lock);
        let other = acquire(&root, None, &mut || ()).unwrap();
        let lost =
            Kept::Lost(LockError::Another(format!("{ANOTHER}: process {}", std::process::id())));
        another_process(&|| lock.borrow_mut().keep(&root) == lost);
        drop(other);
        assert_eq!(lock.borrow_mut().keep(&root), Kept::Anew);
        another_process(&|| matches!(running(&root), Running::Yes));
    }

    #[test]
    fn a_look_that_fails_once_does_not_end_the_lock() {
        let root = crate::runtime::scratch::scratch("once");
        let mut lock = acquire(&root, None, &mut || ()).unwrap();
        lock.id = Id::default();
        assert_eq!(lock.keep(&root), Kept::Anew);
        another_process(&|| matches!(running(&root), Running::Yes));
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};

        let root = crate::runtime::scratch::scratch("theirs");
        let path = root.join("run/mote");
        std::fs::create_dir_all(&path).unwrap();
        let refused = || {
            let why = refusal(&root);
            assert!(
                why.is_some_and(|why| why.ends_with("others than root can change it; remove it"))
            );
        };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        refused();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(65_534), None).unwrap();
            refused();
        }
        std::fs::rename(&path, root.join("elsewhere")).unwrap();
        symlink(root.join("elsewhere"), &path).unwrap();
        refused();
        std::fs::remove_file(&path).unwrap();
        assert!(acquire(&root, None, &mut || ()).is_ok());
    }

    #[test]
    fn who_has_the_lock_is_told_by_the_kernel_and_has_to_be_root() {
        let root = crate::runtime::scratch::scratch("holder");
        let _lock = acquire(&root, None, &mut || ()).unwrap();
        let ours = std::process::id();
        let holds = |uids: &str| {
            let process = root.join(format!("proc/{ours}"));
            std::fs::create_dir_all(&process).unwrap();
            std::fs::write(process.join("status"), format!("Name:\tx\nUid:\t{uids}\n")).unwrap();
            let is_found = || incumbent::holder(&root).is_some();
            crate::sys::run_in_fork(Duration::from_secs(30), &is_found)
        };
        assert!(holds("0\t0\t0\t0"));
        assert!(!holds("0\t1000\t0\t0") && !holds("1000\t0\t0\t0"));
    }

    #[test]
    fn a_second_agent_is_refused_until_the_first_is_gone() {
        let root = crate::runtime::scratch::scratch("lock");
        assert!(matches!(running(&root), Running::No));
        let first = acquire(&root, None, &mut || ()).unwrap();
        let another = format!("{ANOTHER}: process {}", std::process::id());
        another_process(&|| {
            matches!(running(&root), Running::Yes) && refusal(&root).as_ref() == Some(&another)
        });
        drop(first);
        another_process(&|| refusal(&root).is_none());
    }
}
