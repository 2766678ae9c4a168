//! Opens, reads and writes regular files, and creates and lists directories. A directory can be
//! opened as a file but not read. A listing keeps no state between requests.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use mote_core::sftp::LISTING;
use mote_core::sftp::attrs::Attrs;
use mote_core::sftp::longname::Listed;
use mote_core::sftp::reply::Names;
use mote_core::sftp::request::OpenFlags;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, statat};
use rustix::io::Errno;

use crate::runtime::clock;
use crate::workers::sftp::attributes;
use crate::workers::sftp::refusal::Refusal;

pub(super) fn open(
    path: &CStr,
    asked: OpenFlags,
    permissions: Option<u32>,
) -> Result<OwnedFd, Refusal> {
    let mut flags = match (asked.has(OpenFlags::READ), asked.has(OpenFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        // Without either flag, open for reading, as OpenSSH does.
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
    let opened = open_regular(path, flags, Mode::from_raw_mode(permissions.unwrap_or(0o644)));
    match opened {
        Err(Refusal::System(Errno::ACCESS)) if is_protected(path) => Err(Refusal::Protected),
        opened => opened,
    }
}

/// Returns whether this is another user's file or link in a world-writable sticky directory.
fn is_protected(path: &CStr) -> bool {
    let bytes = path.to_bytes();
    let name = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let directory = bytes.get(..name).filter(|path| !path.is_empty()).unwrap_or(b".");
    let (Ok(file), Ok(directory)) = (rustix::fs::lstat(path), rustix::fs::stat(directory)) else {
        return false;
    };
    let owners = [rustix::process::geteuid().as_raw(), directory.st_uid];
    directory.st_mode & 0o1000 != 0
        && directory.st_mode & 0o022 != 0
        && !owners.contains(&file.st_uid)
}

/// Opens a regular file or directory, or creates a file. The kernel refuses to open a directory for
/// writing.
pub(super) fn open_regular(path: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Refusal> {
    match rustix::fs::stat(path) {
        Ok(stat) => check_kind(&stat)?,
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    // With O_NONBLOCK, READ of a FIFO that appears after stat(2) fails instead of hanging.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, mode)?)
}

/// Errors: it is neither a regular file nor a directory.
pub(super) fn check_kind(stat: &Stat) -> Result<(), Refusal> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if matches!(kind, FileType::RegularFile | FileType::Directory) {
        Ok(())
    } else {
        Err(Refusal::NotRegular)
    }
}

/// Reads from an offset; returns the number of bytes, or [`Refusal::Eof`] for none.
pub(super) fn read(file: BorrowedFd<'_>, room: &mut [u8], offset: u64) -> Result<usize, Refusal> {
    match rustix::io::pread(file, room, offset)? {
        0 => Err(Refusal::Eof),
        count => Ok(count),
    }
}

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

pub(super) fn make_directory(path: &CStr, permissions: Option<u32>) -> Result<(), Refusal> {
    Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(permissions.unwrap_or(0o755)))?)
}

/// Writes the next entries of a directory: all that one getdents64(2) returns, so none must be
/// kept.
pub(super) fn list(directory: BorrowedFd<'_>, id: u32, out: &mut [u8]) -> Result<usize, Refusal> {
    let (now, _) = clock::wall();
    let mut piece = [MaybeUninit::uninit(); LISTING];
    let mut entries = RawDir::new(directory, &mut piece);
    let mut names = Names::new(out, id);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            // The directory was removed.
            Err(Errno::NOENT) => break,
            Err(errno) => return Err(errno.into()),
        };
        let name = entry.file_name();
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let links = u32::try_from(stat.st_nlink).unwrap_or(u32::MAX);
                let file = Listed { attrs: attributes::of(&stat), links };
                names.push(name.to_bytes(), &file, now);
            }
            // The entry was removed.
            Err(Errno::NOENT) => {}
            // List it without attributes: it may be a mount whose server is unreachable.
            Err(_) => {
                names.push(name.to_bytes(), &Listed { attrs: Attrs::default(), links: 0 }, now)
            }
        }
        if entries.is_buffer_empty() && names.count() > 0 {
            break;
        }
    }
    if names.count() == 0 { Err(Refusal::Eof) } else { Ok(names.finish()?) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{chmod, scratch};
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{lchown, symlink};

    #[test]
    fn protects_foreign_files_in_sticky_directories() {
        if !rustix::process::getuid().is_root() {
            return;
        }
        let root = scratch("sticky");
        let c = |name: &str| CString::new(root.join(name).as_os_str().as_bytes()).unwrap();
        for name in ["his", "ours"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        symlink("ours", root.join("link")).unwrap();
        for name in ["his", "link"] {
            lchown(root.join(name), Some(65_534), None).unwrap();
        }
        for (mode, is) in [(0o1777, true), (0o1775, true), (0o1755, false), (0o777, false)] {
            chmod(&root, mode);
            let found = ["his", "link", "ours", "none"].map(|name| is_protected(&c(name)));
            assert_eq!(found, [is, is, false, false], "{mode:o}");
        }
        chmod(&root, 0o1777);
        std::os::unix::fs::chown(&*root, Some(65_534), None).unwrap();
        assert!(!is_protected(&c("his")));
    }
}
