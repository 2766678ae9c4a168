//! Names: where they lead, and how they change.

use std::ffi::{CStr, OsStr};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{CWD, RenameFlags, StatVfs, StatVfsMountFlags, renameat_with};
use rustix::io::Errno;

use crate::sftp::Answer;
use crate::sftp::refusal::Refusal;

/// A path without links, `.` and `..`. What is not there (yet) is kept as it is behind what is: a
/// client asks where it may put a file (OpenSSH allows one such name, the Go agents any number).
pub(super) fn real(path: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut there = path;
    loop {
        let base = if there.is_empty() { b"." } else { there };
        match std::fs::canonicalize(OsStr::from_bytes(base)) {
            Ok(real) => {
                let mut real = real.into_os_string().into_vec();
                let missing = path.get(there.len()..).unwrap_or_default();
                if !missing.is_empty() && real != b"/" {
                    real.push(b'/');
                }
                real.extend_from_slice(missing);
                return Ok(real);
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !there.is_empty() => {
                there = without_last(there)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What is before the last name of a path.
fn without_last(path: &[u8]) -> Result<&[u8], Errno> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = path.get(..end).unwrap_or_default();
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    match path.split_at_checked(start) {
        // Behind a directory that is not there, these mean nothing.
        None | Some((_, b"." | b"..")) => Err(Errno::NOENT),
        Some((before, _)) => Ok(before),
    }
}

/// RENAME of version 3: never onto something.
pub(super) fn rename(from: &CStr, to: &CStr) -> Result<(), Refusal> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot (or it is a directory and is to go into itself: told again below).
        Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::lstat(to) {
            Ok(_) => Err(Errno::EXIST.into()),
            Err(Errno::NOENT) => Ok(rustix::fs::rename(from, to)?),
            Err(errno) => Err(errno.into()),
        },
        other => Ok(other?),
    }
}

/// How full a file system is (`statvfs@openssh.com`).
pub(super) fn space(told: &StatVfs) -> Answer {
    // OpenSSH's bits, whatever the system's are.
    let flag = |flag, bit| if told.f_flag.contains(flag) { bit } else { 0 };
    Answer::Numbers([
        told.f_bsize,
        told.f_frsize,
        told.f_blocks,
        told.f_bfree,
        told.f_bavail,
        told.f_files,
        told.f_ffree,
        told.f_favail,
        told.f_fsid,
        flag(StatVfsMountFlags::RDONLY, 1) | flag(StatVfsMountFlags::NOSUID, 2),
        told.f_namemax,
    ])
}
