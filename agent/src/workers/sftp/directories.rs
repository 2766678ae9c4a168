//! Creates and lists directories. A listing keeps no state between requests.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use mote_core::sftp::LISTING;
use mote_core::sftp::attrs::Attrs;
use mote_core::sftp::longname::Listed;
use mote_core::sftp::reply::Names;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, statat};
use rustix::io::Errno;

use crate::runtime::clock;
use crate::workers::sftp::attributes;
use crate::workers::sftp::refusal::Refusal;

pub(super) fn open(path: &CStr) -> Result<OwnedFd, Refusal> {
    // O_DIRECTORY refuses a FIFO or device before opening it, so O_NONBLOCK is not needed.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

pub(super) fn make(path: &CStr, permissions: Option<u32>) -> Result<(), Refusal> {
    Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(permissions.unwrap_or(0o755)))?)
}

/// Writes the next entries: all those of one getdents64(2), so that none need to be kept.
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
