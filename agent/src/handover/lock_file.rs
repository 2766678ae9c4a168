//! The lock file, with a record lock (fcntl(2)): the kernel reports its holder, and children do not
//! inherit it. A process loses it by closing any descriptor of the file, so the rest of the agent
//! never opens it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::guest_path::is_roots_alone;
use crate::runtime::{
    io_error, io_error_of, log, log::frozen, make_directory, read_bounded, run_dir,
    run_dir::unwritable,
};
use crate::sys::file::{self, OFlags};

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;

pub(super) struct LockFile {
    /// Kept open: closing it releases the lock. `None` while `/run` is read-only.
    file: Option<File>,
    path: PathBuf,
    id: Id,
}

/// Device and inode number of the lock file.
type Id = (u64, u64);

impl LockFile {
    pub(super) fn none(root: &Path) -> Self {
        Self { file: None, path: root.join(run_dir::LOCK), id: Id::default() }
    }

    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn is_named(&self) -> bool {
        file::id(&self.path) == Ok(self.id)
    }

    #[cfg(test)]
    pub(super) fn lose(&mut self) {
        self.id = Id::default();
    }

    pub(super) fn release(&mut self) {
        self.file = None;
    }

    /// Locks the file again: closing an older descriptor of it may have released the lock.
    pub(super) fn lock_again(&self) {
        let _locked = self.file.as_ref().map(|file| fcntl_lock(file, EXCLUSIVE));
    }
}

/// Takes the lock; `None` if another process has it. Errors, with advice: a file or directory
/// cannot be created, opened or locked, or other users can change it.
pub(super) fn take(root: &Path) -> io::Result<Option<LockFile>> {
    let path = root.join(run_dir::LOCK);
    let refused = |verb, path: &Path, error: io::Error| {
        io_error_of(error.kind(), unwritable(verb, path, &error))
    };
    if let Some(directory) = path.parent() {
        make_directory(directory).map_err(|error| refused("make", directory, error))?;
        if !is_roots_alone(directory) {
            let text =
                format!("{}: users other than root can change it; remove it", directory.display());
            return Err(io_error(text));
        }
    }
    let file = file::open(&path, OFlags::WRONLY | OFlags::CREATE)
        .map_err(|error| refused("write", &path, error.into()))?;
    match fcntl_lock(&file, EXCLUSIVE) {
        Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
        locked => locked.map_err(|error| refused("lock", &path, error.into()))?,
    }
    forget(root);
    let id = file::id(&path).unwrap_or_default();
    Ok(Some(LockFile { file: Some(file), path, id }))
}

/// Returns another process's lock.
pub(super) fn held(root: &Path) -> io::Result<Option<Flock>> {
    let file = file::open(&root.join(run_dir::LOCK), OFlags::RDONLY)?;
    Ok(fcntl_getlk(&file, &FlockType::WriteLock.into())?)
}

/// Returns the holder of the lock, if it is in this pid namespace.
pub(super) fn pid(root: &Path) -> Option<u64> {
    u64::try_from(held(root).ok()??.pid?.as_raw_nonzero().get()).ok()
}

/// Removes files from an earlier boot, because `/run` may be on a disk.
fn forget(root: &Path) {
    // Without a boot id the files' age is unknown.
    let Ok(boot) = read_bounded(&root.join("proc/sys/kernel/random/boot_id"), 64) else { return };
    let path = root.join(run_dir::BOOT);
    if read_bounded(&path, 64).is_ok_and(|noted| noted == boot) {
        return;
    }
    for path in run_dir::OF_A_BOOT {
        let _none = file::unlink(&root.join(path));
    }
    frozen::forget(root);
    if let Err(error) = file::write(&path, boot) {
        log::debug(format_args!("cannot write {}: {error}", path.display()));
    }
}

/// Removes files of an earlier agent that must not be trusted: its status, because it has ended,
/// and what a sandboxed agent may have written.
pub(super) fn tidy(root: &Path) {
    let _none = file::unlink(&root.join(run_dir::STATUS));
    let hanging = root.join(run_dir::HANGING);
    if !is_roots_alone(&hanging) {
        let _none = file::unlink(&hanging);
    }
}
