//! Converts and sets file attributes.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mote_core::sftp::attrs::Attrs;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::workers::sftp::files;
use crate::workers::sftp::refusal::Refusal;

/// Returns the attributes of SFTP 3, whose times range from 1970 to 2106.
pub(super) fn of(stat: &Stat) -> Attrs {
    let seconds = |time: i64| u32::try_from(time.max(0)).unwrap_or(u32::MAX);
    Attrs {
        size: Some(u64::try_from(stat.st_size).unwrap_or(0)),
        owner: Some((stat.st_uid, stat.st_gid)),
        permissions: Some(stat.st_mode),
        times: Some((seconds(stat.st_atime), seconds(stat.st_mtime))),
    }
}

#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// The file at this path or, with `SYMLINK_NOFOLLOW`, the symbolic link itself.
    Path(&'a CStr, AtFlags),
    Open(BorrowedFd<'a>),
}

/// Works like [`set`], but only on files and directories: giving a device node or socket a new
/// owner could open access beyond the permitted directories. An open file needs no check.
pub(super) fn set_of_file(target: Target<'_>, attrs: &Attrs) -> Result<(), Refusal> {
    let Target::Path(path, how) = target else { return set(target, attrs) };
    let access = if attrs.size.is_some() { OFlags::WRONLY } else { OFlags::RDONLY };
    let file = open(path, how, access)?;
    files::check_kind(&rustix::fs::fstat(&file)?)?;
    set(Target::Open(file.as_fd()), attrs)
}

/// Sets the given attributes: the size first, because it changes the times, and the owner before
/// the permissions, because chown(2) clears set-user-id.
pub(super) fn set(target: Target<'_>, attrs: &Attrs) -> Result<(), Refusal> {
    if let Some(size) = attrs.size {
        match target {
            Target::Path(path, how) => {
                rustix::fs::ftruncate(open(path, how, OFlags::WRONLY)?, size)?
            }
            Target::Open(fd) => rustix::fs::ftruncate(fd, size)?,
        }
    }
    if let Some((user, group)) = attrs.owner {
        let user = (user != u32::MAX).then(|| Uid::from_raw(user));
        let group = (group != u32::MAX).then(|| Gid::from_raw(group));
        match target {
            Target::Path(path, how) => rustix::fs::chownat(CWD, path, user, group, how)?,
            Target::Open(fd) => rustix::fs::fchown(fd, user, group)?,
        }
    }
    if let Some(permissions) = attrs.permissions {
        let mode = Mode::from_raw_mode(permissions);
        match target {
            // Linux cannot set permissions of symbolic links.
            Target::Path(path, how) if !how.is_empty() && is_link(path)? => {
                return Err(Refusal::Unsupported);
            }
            Target::Path(path, _) => rustix::fs::chmod(path, mode)?,
            Target::Open(fd) => rustix::fs::fchmod(fd, mode)?,
        }
    }
    if let Some((access, modification)) = attrs.times {
        let time = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
        let times = Timestamps { last_access: time(access), last_modification: time(modification) };
        match target {
            Target::Path(path, how) => rustix::fs::utimensat(CWD, path, &times, how)?,
            Target::Open(fd) => rustix::fs::futimens(fd, &times)?,
        }
    }
    Ok(())
}

fn is_link(path: &CStr) -> Result<bool, Errno> {
    let mode = rustix::fs::lstat(path)?.st_mode;
    Ok(FileType::from_raw_mode(mode) == FileType::Symlink)
}

fn open(path: &CStr, how: AtFlags, access: OFlags) -> Result<OwnedFd, Refusal> {
    let follow = if how.is_empty() { OFlags::empty() } else { OFlags::NOFOLLOW };
    files::open_regular(path, access | follow, Mode::empty())
}
