//! The lock's file: a record lock (fcntl(2)). The kernel tells who has it, and no child inherits it. A process loses it
//! when it closes any descriptor of the file, which nothing in the agent's process but this opens.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock, stat};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::guest_path::is_roots_alone;
use crate::handover::lock_error::LockError;
use crate::runtime::log::frozen;
use crate::runtime::run_dir::unwritable;
use crate::runtime::small_files::{make_directory, read_bounded};
use crate::runtime::{log, run_dir};

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;

/// The file, locked as long as this is there.
#[derive(Debug)]
pub(super) struct LockFile {
    /// Kept open: closing it releases the lock. `None` while `/run` is read-only.
    file: Option<File>,
    path: PathBuf,
    id: Id,
}

/// Device and inode number of the lock file.
type Id = (u64, u64);

impl LockFile {
    /// One that is not there.
    pub(super) fn none(root: &Path) -> Self {
        Self { file: None, path: root.join(run_dir::LOCK), id: Id::default() }
    }

    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Whether it is still the file found by its name.
    pub(super) fn is_named(&self) -> bool {
        id(&self.path) == Some(self.id)
    }

    /// Has it be taken for another file.
    #[cfg(test)]
    pub(super) fn lose(&mut self) {
        self.id = Id::default();
    }

    /// Ends the lock.
    pub(super) fn release(&mut self) {
        self.file = None;
    }

    /// Locks it again: had an older descriptor been of the same file, closing that would have ended the lock.
    pub(super) fn lock_again(&self) {
        let _locked = self.file.as_ref().map(|file| fcntl_lock(file, EXCLUSIVE));
    }
}

/// Takes the lock; `None` if another process has it.
///
/// # Errors
/// [`LockError::Refused`] if something cannot be made, opened or locked.
#[inline(never)] // its size
pub(super) fn take(root: &Path) -> Result<Option<LockFile>, LockError> {
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
    Ok(Some(LockFile { file: Some(file), path, id }))
}

#[inline(never)] // its size
fn id(path: &Path) -> Option<Id> {
    stat(path).ok().map(|about| (about.st_dev, about.st_ino))
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

/// Removes an agent's files of an earlier boot: not every guest has its `/run` in memory.
fn forget(root: &Path) {
    // Without a boot id, their age is unknown and they are kept.
    let Ok(boot) = read_bounded(&root.join("proc/sys/kernel/random/boot_id"), 64) else { return };
    let path = root.join(run_dir::BOOT);
    if read_bounded(&path, 64).is_ok_and(|noted| noted == boot) {
        return;
    }
    for path in run_dir::OF_A_BOOT {
        let _none = std::fs::remove_file(root.join(path));
    }
    frozen::forget(root);
    if let Err(error) = std::fs::write(&path, boot) {
        log::debug(format_args!("cannot write {}: {error}", path.display()));
    }
}

/// Removes what an earlier agent has left that is not to be believed: its status file, for it has ended, and what an agent in
/// the sandbox may have written.
pub(super) fn tidy(root: &Path) {
    let _none = std::fs::remove_file(root.join(run_dir::STATUS));
    let hanging = root.join(run_dir::HANGING);
    if !is_roots_alone(&hanging) {
        let _none = std::fs::remove_file(hanging);
    }
}
