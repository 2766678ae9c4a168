//! Contents of regular files.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use mote_agent::sftp::request::OpenFlags;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::sftp::refusal::Refusal;

/// What a new file may be asked to be; nothing about its type.
pub(super) const MODE: u32 = 0o7777;

/// Opens or makes a regular file.
pub(super) fn open(
    path: &CStr,
    asked: OpenFlags,
    permissions: Option<u32>,
) -> Result<OwnedFd, Refusal> {
    let mut flags = match (asked.has(OpenFlags::READ), asked.has(OpenFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        // Neither: as OpenSSH.
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
    open_regular(path, flags, Mode::from_raw_mode(permissions.unwrap_or(0o644) & MODE))
}

/// Opens a file that is regular, or is not there yet.
pub(super) fn open_regular(path: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Refusal> {
    match rustix::fs::stat(path) {
        Ok(stat) => {
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::Directory {
                return Err(Errno::ISDIR.into());
            }
            if kind != FileType::RegularFile {
                return Err(Refusal::NotRegular);
            }
        }
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    // NONBLOCK: somebody may have put a FIFO there since we looked. Its READ fails, but nothing
    // hangs.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, mode)?)
}

/// Reads what there is at an offset.
pub(super) fn read(file: BorrowedFd<'_>, room: &mut [u8], offset: u64) -> Result<usize, Refusal> {
    match rustix::io::pread(file, room, offset)? {
        0 => Err(Refusal::Eof),
        count => Ok(count),
    }
}

/// Writes all of it at an offset.
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
