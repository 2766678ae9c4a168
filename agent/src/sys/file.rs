//! Accesses files by name. For each type of path and result, std and rustix would link a separate
//! copy of the code that copies the name.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{self, Gid, Mode, Stat, StatFs};
pub(crate) use rustix::fs::{Access, OFlags};
use rustix::io::{Errno, Result, retry_on_intr};

/// Returns the path as a C string. Errors: `EINVAL` if it contains a NUL.
pub(crate) fn name(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
}

/// Opens a file, close-on-exec. With `OFlags::CREATE`, only root can access a new one (0600).
pub(crate) fn open(path: &Path, flags: OFlags) -> Result<File> {
    let (name, flags) = (name(path)?, flags | OFlags::CLOEXEC);
    retry_on_intr(|| fs::open(&*name, flags, Mode::from_raw_mode(0o600))).map(File::from)
}

/// Replaces a file's content. Only root can access a new file (0600).
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?.write_all(bytes.as_ref())
}

pub(crate) fn stat(path: &Path) -> Result<Stat> {
    fs::stat(&*name(path)?)
}

pub(crate) fn lstat(path: &Path) -> Result<Stat> {
    fs::lstat(&*name(path)?)
}

pub(crate) fn exists(path: &Path) -> bool {
    stat(path).is_ok()
}

/// Returns device and inode number, which identify a file whatever its path.
pub(crate) fn id(path: &Path) -> Result<(u64, u64)> {
    stat(path).map(|about| (about.st_dev, about.st_ino))
}

pub(crate) fn access(path: &Path, wanted: Access) -> Result<()> {
    fs::access(&*name(path)?, wanted)
}

pub(crate) fn statfs(path: &Path) -> Result<StatFs> {
    fs::statfs(&*name(path)?)
}

pub(crate) fn unlink(path: &Path) -> Result<()> {
    fs::unlink(&*name(path)?)
}

pub(crate) fn rmdir(path: &Path) -> Result<()> {
    fs::rmdir(&*name(path)?)
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(&*name(from)?, &*name(to)?)
}

pub(crate) fn mkdir(path: &Path) -> Result<()> {
    fs::mkdir(&*name(path)?, Mode::from_raw_mode(0o777))
}

pub(crate) fn chmod(path: &Path, mode: u32) -> Result<()> {
    fs::chmod(&*name(path)?, Mode::from_raw_mode(mode))
}

pub(crate) fn chgrp(path: &Path, group: u32) -> Result<()> {
    fs::chown(&*name(path)?, None, Some(Gid::from_raw(group)))
}

pub(crate) fn symlink(target: &Path, path: &Path) -> Result<()> {
    fs::symlink(&*name(target)?, &*name(path)?)
}

pub(crate) fn readlink(path: &Path) -> Result<PathBuf> {
    let target = fs::readlink(&*name(path)?, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

/// Suffix of a removed file's name in `/proc`.
pub(crate) const REMOVED: &str = " (deleted)";

/// Returns the path of a program whose file an upgrade may have replaced, from its link in `/proc`.
pub(crate) fn program(link: &Path) -> &[u8] {
    let link = link.as_os_str().as_bytes();
    link.strip_suffix(REMOVED.as_bytes()).unwrap_or(link)
}
