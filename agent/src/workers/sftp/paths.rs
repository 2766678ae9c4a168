//! REALPATH, RENAME and statvfs.

use std::ffi::{CStr, OsStr};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{FileType, StatVfs, StatVfsMountFlags};
use rustix::io::Errno;

use crate::workers::sftp::perform::Answer;
use crate::workers::sftp::refusal::Refusal;

/// Returns the absolute path without symbolic links, `.` and `..`. Keeps trailing names that do not
/// exist: a client asks for the path of a file that it will create. (OpenSSH allows one such name,
/// the Go agents any number.)
pub(super) fn real(path: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut existing = path;
    loop {
        let base = if existing.is_empty() { b"." } else { existing };
        match std::fs::canonicalize(OsStr::from_bytes(base)) {
            Ok(real) => {
                let mut real = real.into_os_string().into_vec();
                let missing = path.get(existing.len()..).unwrap_or_default();
                if !missing.is_empty() && real != b"/" {
                    real.push(b'/');
                }
                real.extend_from_slice(missing);
                return Ok(real);
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !existing.is_empty() => {
                existing = without_last(existing)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the path without its last name; `ENOENT` if that is `.` or `..`, which have no meaning
/// below a missing directory.
fn without_last(path: &[u8]) -> Result<&[u8], Errno> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = path.get(..end).unwrap_or_default();
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    match path.split_at_checked(start) {
        None | Some((_, b"." | b"..")) => Err(Errno::NOENT),
        Some((before, _)) => Ok(before),
    }
}

/// Renames like Go's `os.Rename` in the Go agents' server: replaces a file, but not a directory.
pub(super) fn rename(from: &CStr, to: &CStr) -> Result<(), Refusal> {
    if let Ok(replaced) = rustix::fs::lstat(to)
        && FileType::from_raw_mode(replaced.st_mode) == FileType::Directory
    {
        // An error of `from` takes precedence.
        rustix::fs::lstat(from)?;
        return Err(Errno::EXIST.into());
    }
    Ok(rustix::fs::rename(from, to)?)
}

/// Returns size and free space of a file system (`statvfs@openssh.com`).
pub(super) fn space(stat: &StatVfs) -> Answer {
    // The wire has OpenSSH's bits, not the system's.
    let flag = |flag, bit| if stat.f_flag.contains(flag) { bit } else { 0 };
    Answer::Numbers([
        stat.f_bsize,
        stat.f_frsize,
        stat.f_blocks,
        stat.f_bfree,
        stat.f_bavail,
        stat.f_files,
        stat.f_ffree,
        stat.f_favail,
        stat.f_fsid,
        flag(StatVfsMountFlags::RDONLY, 1) | flag(StatVfsMountFlags::NOSUID, 2),
        stat.f_namemax,
    ])
}
