//! Directories: listed in pieces that need no memory between two requests but the kernel's own.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use mote_agent::sftp::LISTING;
use mote_agent::sftp::attrs::Attrs;
use mote_agent::sftp::longname::Listed;
use mote_agent::sftp::reply::Names;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, statat};
use rustix::io::Errno;

use crate::clock;
use crate::sftp::attributes;
use crate::sftp::files::MODE;
use crate::sftp::refusal::Refusal;

/// Opens one to be listed.
pub(super) fn open(path: &CStr) -> Result<OwnedFd, Refusal> {
    // DIRECTORY comes before a FIFO's or a device's own open, so NONBLOCK is not needed.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Makes one.
pub(super) fn make(path: &CStr, permissions: Option<u32>) -> Result<(), Refusal> {
    Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(permissions.unwrap_or(0o755) & MODE))?)
}

/// Writes the next entries: all of one piece that the kernel gave, so that nothing is left over.
pub(super) fn list(directory: BorrowedFd<'_>, id: u32, out: &mut [u8]) -> Result<usize, Refusal> {
    let (now, _) = clock::wall();
    let mut piece = [MaybeUninit::uninit(); LISTING];
    let mut entries = RawDir::new(directory, &mut piece);
    let mut names = Names::new(out, id);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            // It was removed while it was read.
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
            // It has gone since.
            Err(Errno::NOENT) => {}
            // A mount whose server is away is still there to be seen.
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
