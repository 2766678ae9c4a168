//! Open files and directories of a session.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mote_core::sftp::HANDLES;
use mote_core::sftp::handles::Handles;
use mote_core::sftp::request::Handle;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sys;
use crate::workers::sftp::refusal::Refusal;

/// Descriptors not available to handles: input, output, log, one for a request that opens a file to
/// change it, and inherited ones.
const OTHERS: u64 = 8;

pub(super) enum Open {
    /// Opened by OPEN, possibly a directory, whose READ fails.
    File(OwnedFd),
    /// Opened by OPENDIR, for READDIR.
    Directory(OwnedFd),
}

/// Returns a handle table as large as the limit of descriptors permits. Raises the soft limit,
/// which is low only for programs that use select(2).
pub(super) fn table() -> Handles<Open> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(HANDLES).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let possible = limit.maximum.unwrap_or(wanted).min(wanted);
    let mut files = limit.current.unwrap_or(possible).min(possible);
    if files < possible {
        let raised = Rlimit { current: Some(possible), maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            files = possible;
        }
    }
    Handles::new(usize::try_from(files.saturating_sub(OTHERS)).unwrap_or(HANDLES))
}

/// Opens a file or directory and returns its handle; `EMFILE` if the table is full.
pub(super) fn add(
    handles: &mut Handles<Open>,
    open: impl FnOnce() -> Result<Open, Refusal>,
) -> Result<Handle, Refusal> {
    if !handles.has_room() {
        return Err(Errno::MFILE.into());
    }
    handles.add(open()?).ok_or(Refusal::System(Errno::MFILE))
}

pub(super) fn file(handles: &Handles<Open>, handle: Handle) -> Result<BorrowedFd<'_>, Refusal> {
    match handles.get(handle).ok_or(Refusal::BadHandle)? {
        Open::File(fd) => Ok(fd.as_fd()),
        Open::Directory(_) => Err(Refusal::BadHandle),
    }
}

pub(super) fn directory(
    handles: &Handles<Open>,
    handle: Handle,
) -> Result<BorrowedFd<'_>, Refusal> {
    match handles.get(handle).ok_or(Refusal::BadHandle)? {
        Open::Directory(fd) => Ok(fd.as_fd()),
        Open::File(_) => Err(Refusal::BadHandle),
    }
}

pub(super) fn any(handles: &Handles<Open>, handle: Handle) -> Result<BorrowedFd<'_>, Refusal> {
    match handles.get(handle).ok_or(Refusal::BadHandle)? {
        Open::File(fd) | Open::Directory(fd) => Ok(fd.as_fd()),
    }
}

/// Closes a handle. close(2) may report an error of an earlier write, such as a full quota on a
/// network file system.
pub(super) fn close(handles: &mut Handles<Open>, handle: Handle) -> Result<(), Refusal> {
    match handles.take(handle).ok_or(Refusal::BadHandle)? {
        Open::File(fd) | Open::Directory(fd) => Ok(sys::close(fd)?),
    }
}
