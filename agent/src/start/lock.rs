//! One agent at a time: a file lock that ends with its process. Files of an earlier boot are removed.
//!
//! An initramfs may start the agent before the final `/run` is mounted; the mount then hides the lock
//! file. The agent takes the lock again in the new `/run` ([`Lock::keep`]). Until then other processes
//! find the agent by its open file in `/proc` ([`hidden`]).

use std::fmt;
use std::fs::{File, read_link};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FlockOperation, access, flock, stat};
use rustix::io::Errno;

use crate::built;
use crate::guest_path::is_roots_alone;
use crate::net::transport::Transport;
use crate::runtime::clock::look_for;
use crate::runtime::run_dir::unwritable;
use crate::runtime::small_files::read_bounded;
use crate::runtime::{log, run_dir};
use crate::start::anew::REMOVED;
use crate::start::devices::entries;
use crate::start::first_agent;
use crate::status::view;

/// Message for a second agent.
const ANOTHER: &str = "another mote-agent is running";

/// Why it cannot be seen if an agent runs.
const BLIND: &str = "/run is read-only: mount a tmpfs there";

/// Time to retry the lock: [`running`] in another process holds it for a moment.
const RETRY: Duration = Duration::from_millis(200);
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

/// Result of [`Lock::keep`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The lock file is still the one found by its name.
    Same,
    /// The lock was taken again in a new directory; the files beside it are missing there.
    Anew,
    /// The lock could not be taken again, with the reason.
    Lost(String),
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
                Kept::Anew
            }
            Ok(None) => Kept::Lost(another(root)),
            // Said at start.
            Err((ErrorKind::ReadOnlyFilesystem, _)) if self.file.is_none() => Kept::Same,
            Err((_, why)) => Kept::Lost(why),
        }
    }
}

/// Takes the lock; creates `/run/mote` if it is missing. On a read-only `/run` the agent goes on without it. An agent
/// that an initramfs has started makes room for one that `takes_over`, with its listener of this transport.
///
/// # Errors
/// Another agent runs, or directory or file cannot be created or locked.
pub(crate) fn acquire(root: &Path, takes_over: Option<&Transport>) -> Result<Lock, String> {
    let mut lock = look_for(RETRY, || take(root).transpose());
    let makes_room =
        |pid| takes_over.is_some_and(|transport| first_agent::makes_room(root, pid, transport));
    let replaces = lock.is_none() && makes_room(holder(root));
    if replaces {
        lock = look_for(REPLACED, || take(root).transpose());
    }
    let lock = match lock.transpose() {
        Ok(lock) => lock.ok_or_else(|| another(root))?,
        Err((ErrorKind::ReadOnlyFilesystem, why)) => {
            log::warn(format_args!("{why}; until then no second agent is noticed"));
            Lock { file: None, path: root.join(run_dir::LOCK), id: Id::default() }
        }
        Err((_, why)) => return Err(why),
    };
    // The one that has made room has looked already, and the host waits.
    if !replaces && let Some(other) = hidden(root) {
        let has_left = || look_for(REPLACED, || hidden(root).is_none().then_some(()));
        if !(makes_room(Some(other.pid)) && has_left().is_some()) {
            return Err(format!("{ANOTHER}: {other}"));
        }
    }
    // A status file left here is that of an agent that has ended.
    let _none = std::fs::remove_file(root.join(run_dir::STATUS));
    Ok(lock)
}

/// Takes the lock; `None` if another process has it.
///
/// # Errors
/// Kind and message of what cannot be made, opened or locked.
#[inline(never)] // its size
fn take(root: &Path) -> Result<Option<Lock>, (ErrorKind, String)> {
    let path = root.join(run_dir::LOCK);
    let refused =
        |verb, path: &Path, error: io::Error| (error.kind(), unwritable(verb, path, &error));
    if let Some(directory) = path.parent() {
        make(directory).map_err(|error| refused("make", directory, error))?;
        if !is_roots_alone(directory) {
            let text =
                format!("{}: others than root can change it; remove it", directory.display());
            return Err((ErrorKind::PermissionDenied, text));
        }
    }
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| refused("write", &path, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked.map_err(|error| refused("lock", &path, error.into()))?,
    }
    forget(root);
    let id = id(&path).unwrap_or_default();
    Ok(Some(Lock { file: Some(file), path, id }))
}

/// Makes a directory and those above it. All are 0755, whatever the umask: a missing `/run` is not only the agent's.
fn make(directory: &Path) -> io::Result<()> {
    let mut made = std::fs::create_dir(directory);
    if let (Err(error), Some(above)) = (&made, directory.parent())
        && error.kind() == ErrorKind::NotFound
    {
        make(above)?;
        made = std::fs::create_dir(directory);
    }
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)),
    }
}

#[inline(never)] // its size
fn id(path: &Path) -> Option<Id> {
    stat(path).ok().map(|about| (about.st_dev, about.st_ino))
}

/// Error message for a lock held elsewhere, with the holder's process id if its status file has one.
#[inline(never)] // its size
fn another(root: &Path) -> String {
    match holder(root) {
        Some(pid) => format!("{ANOTHER}: process {pid}"),
        None => ANOTHER.into(),
    }
}

/// Process id of the lock's holder, if its status file has it.
fn holder(root: &Path) -> Option<u32> {
    view::writer(root).map(|(pid, _)| pid)
}

/// Removes an agent's files of an earlier boot: not every guest has its `/run` in memory.
fn forget(root: &Path) {
    // Without a boot id, their age is unknown and they are kept.
    let Ok(boot) = read_bounded(&root.join("proc/sys/kernel/random/boot_id"), 64) else { return };
    let path = root.join(run_dir::BOOT);
    if read_bounded(&path, 64).is_ok_and(|noted| noted == boot) {
        return;
    }
    for path in [run_dir::READY, run_dir::HANGING, run_dir::KNOWN_HOST] {
        let _none = std::fs::remove_file(root.join(path));
    }
    if let Err(error) = std::fs::write(&path, boot) {
        log::debug(format_args!("cannot write {}: {error}", path.display()));
    }
}

/// Result of [`running`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Running {
    Yes,
    /// An agent runs, but its files are hidden at the moment.
    Hidden(Hidden),
    No,
    /// The lock cannot be opened: the reason, and what to do.
    Unknown(String),
}

/// Looks for a running agent by its lock.
#[inline(never)] // its size
pub(crate) fn running(root: &Path) -> Running {
    let path = root.join(run_dir::LOCK);
    let absent = || hidden(root).map_or(Running::No, Running::Hidden);
    let above = root.join("run");
    match File::open(&path) {
        Ok(file) => match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Running::Yes,
            Ok(()) | Err(_) => absent(),
        },
        // An agent goes on without a lock there.
        Err(_) if access(above.as_path(), Access::WRITE_OK) == Err(Errno::ROFS) => {
            Running::Unknown(BLIND.into())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => absent(),
        Err(error) => {
            Running::Unknown(format!("cannot open {}: {error}; ask as root", path.display()))
        }
    }
}

/// An agent whose lock file is not the one found by its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) pid: u32,
    why: &'static str,
}

impl fmt::Display for Hidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "process {} runs, but {}", self.pid, self.why)
    }
}

/// Looks in `/proc` for a process that has a lock file of this name open, but another one than the
/// name leads to.
#[inline(never)] // its size
fn hidden(root: &Path) -> Option<Hidden> {
    if !built::STATE {
        // Left out of the smallest build to save bytes; it still takes its lock again.
        return None;
    }
    let path = root.join(run_dir::LOCK);
    let visible = id(&path);
    for process in entries(&root.join("proc")) {
        let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
            continue;
        };
        for file in entries(&process.join("fd")) {
            let Ok(name) = read_link(&file) else { continue };
            let name = name.as_os_str().as_encoded_bytes();
            let why = match name.strip_prefix(path.as_os_str().as_encoded_bytes()) {
                Some(b"") => "was started before /run was mounted",
                Some(rest) if rest == REMOVED.as_bytes() => "/run/mote was removed under it",
                Some(_) | None => continue,
            };
            if id(&file).is_some_and(|other| Some(other) != visible) {
                return Some(Hidden { pid, why });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_query_does_not_keep_an_agent_from_starting() {
        let root = crate::runtime::scratch::scratch("looked");
        drop(acquire(&root, None).unwrap());
        // As `running` does, but suspended for a while with the lock held.
        let file = File::open(root.join("run/mote/lock")).unwrap();
        flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
        let looking = std::thread::spawn(move || {
            std::thread::sleep(2 * crate::runtime::clock::LOOK);
            drop(file);
        });
        assert_eq!(acquire(&root, None).err(), None);
        looking.join().unwrap();
    }

    #[test]
    fn ready_is_forgotten_at_the_next_boot() {
        let root = crate::runtime::scratch::scratch("forget");
        let (random, ready) = (root.join("proc/sys/kernel/random"), root.join("run/mote/ready"));
        std::fs::create_dir_all(&random).unwrap();
        // Boot id, and whether Ready is still known when the next agent has started.
        for (boot, known) in [("a\n", false), ("a\n", true), ("b\n", false), ("b\n", true)] {
            std::fs::write(random.join("boot_id"), boot).unwrap();
            drop(acquire(&root, None).unwrap());
            assert_eq!(ready.exists(), known, "{boot}");
            std::fs::write(&ready, "Ready").unwrap();
        }
    }

    #[test]
    fn a_lock_whose_file_is_gone_is_found_by_its_holder_and_taken_anew() {
        let root = crate::runtime::scratch::scratch("gone");
        let mut lock = acquire(&root, None).unwrap();
        assert_eq!(lock.keep(&root), Kept::Same);
        let hide = |name: &str| std::fs::rename(root.join("run"), root.join(name)).unwrap();
        hide("first");
        assert_eq!(running(&root), Running::No);
        // The kernel shows an open file below a later mount by its plain name.
        let files = root.join("proc/77/fd");
        std::fs::create_dir_all(&files).unwrap();
        std::os::unix::fs::symlink(root.join(run_dir::LOCK), files.join("3")).unwrap();
        assert_eq!(running(&root), Running::No, "a name that leads nowhere");
        assert_eq!(lock.keep(&root), Kept::Anew);
        assert_eq!((running(&root), lock.keep(&root)), (Running::Yes, Kept::Same));
        hide("second");
        let other = acquire(&root, None).unwrap();
        assert_eq!(lock.keep(&root), Kept::Lost("another mote-agent is running".into()));
        drop(other);
        assert_eq!(lock.keep(&root), Kept::Anew);
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};

        let root = crate::runtime::scratch::scratch("theirs");
        let path = root.join("run/mote");
        std::fs::create_dir_all(&path).unwrap();
        let refused = || {
            let why = acquire(&root, None).err();
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
        assert!(acquire(&root, None).is_ok());
    }

    #[test]
    fn a_second_agent_is_refused_until_the_first_is_gone() {
        let root = crate::runtime::scratch::scratch("lock");
        assert_eq!(running(&root), Running::No);
        let first = acquire(&root, None).unwrap();
        assert_eq!(running(&root), Running::Yes);
        assert_eq!(acquire(&root, None).err(), Some("another mote-agent is running".into()));
        drop(first);
        assert!(acquire(&root, None).is_ok());
    }
}
