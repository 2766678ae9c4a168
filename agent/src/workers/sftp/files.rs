//! Opens, reads and writes regular files. A directory can be opened but not read.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use mote_core::sftp::request::OpenFlags;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::workers::sftp::refusal::Refusal;

/// Opens or creates a regular file, or opens a directory.
pub(super) fn open(
    path: &CStr,
    asked: OpenFlags,
    permissions: Option<u32>,
) -> Result<OwnedFd, Refusal> {
    let mut flags = match (asked.has(OpenFlags::READ), asked.has(OpenFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        // Neither flag means reading, as in OpenSSH.
        (_, false) => OFlags::RDONLY,
    };
    for (wire, flag) in [
        (OpenFlags::APPEND, OFlags::APPEND),
        (OpenFlags::CREATE, OFlags::CREATE),
        (OpenFlags::TRUNCATE, OFlags::TRUNC),
        (OpenFlags::EXCLUSIVE, OFlags::EXCL),
    ] {
        if asked.has(wire) {
            flags |= flag;
        }
    }
    open_regular(path, flags, Mode::from_raw_mode(permissions.unwrap_or(0o644)))
}

/// Opens a regular file or directory, or creates a file. The kernel refuses to open a directory for
/// writing.
pub(super) fn open_regular(path: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Refusal> {
    match rustix::fs::stat(path) {
        Ok(stat) => check_kind(&stat)?,
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    // O_NONBLOCK: a FIFO may have replaced the file since stat(2). Its READ fails instead of hanging.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, mode)?)
}

/// # Errors
/// It is neither a regular file nor a directory.
pub(super) fn check_kind(stat: &Stat) -> Result<(), Refusal> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if matches!(kind, FileType::RegularFile | FileType::Directory) {
        Ok(())
    } else {
        Err(Refusal::NotRegular)
    }
}

/// Reads into `room` from an offset; returns the number of bytes, or [`Refusal::Eof`] for none.
pub(super) fn read(file: BorrowedFd<'_>, room: &mut [u8], offset: u64) -> Result<usize, Refusal> {
    match rustix::io::pread(file, room, offset)? {
        0 => Err(Refusal::Eof),
        count => Ok(count),
    }
}

/// Writes all of `data` at an offset.
pub(super) fn write(file: BorrowedFd<'_>, data: &[u8], offset: u64) -> Result<(), Refusal> {
    let (mut data, mut offset) = (data, offset);
    while !data.is_empty() {
        let count = match rustix::io::pwrite(file, data, offset)? {
            0 => return Err(Errno::IO.into()),
            count => count,
        };
        data = data.get(count..).unwrap_or_default();
        offset = offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
    Ok(())
}
