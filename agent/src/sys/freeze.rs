//! Freezes, thaws and trims file systems (ioctl_fsfreeze(2), linux/fs.h); locks memory; forks.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::stdio::stdin;

use super::disk::control;
use super::{call_in_fork, done};

/// `_IOWR('X', 119, int)`.
const FREEZE: u32 = 0xc004_5877;
/// `_IOWR('X', 120, int)`.
const THAW: u32 = 0xc004_5878;
/// `_IOWR('X', 121, struct fstrim_range)`.
const TRIM: u32 = 0xc018_5879;

/// Locks all present and future memory, so that the process needs no disk to continue.
pub(crate) fn stay_in_memory() -> io::Result<()> {
    // SAFETY: mlockall takes no pointers.
    done(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) })
}

/// Freezes the file system of an open directory until `until`, a time since boot; returns 0 or the
/// errno. A child does it, because the call hangs as long as the disk does. After `ETIMEDOUT`, the
/// file system may still become frozen when the child ends.
pub(crate) fn freeze(directory: BorrowedFd<'_>, until: Duration) -> i32 {
    call_in_fork(until, directory, &|| call(stdin(), FREEZE))
}

/// Thaws the file system of an open directory, in a child like [`freeze`].
pub(crate) fn thaw(directory: BorrowedFd<'_>, until: Duration) -> i32 {
    match call_in_fork(until, directory, &|| call(stdin(), THAW)) {
        // Without a child the thaw may hang, but the file system must not stay frozen.
        libc::EAGAIN | libc::ENOMEM => thaw_here(directory),
        error => error,
    }
}

/// Thaws the file system of an open directory in this process, which may hang.
pub(crate) fn thaw_here(directory: BorrowedFd<'_>) -> i32 {
    call(directory, THAW)
}

/// Opens a directory and thaws its file system, in a child, because opening may hang, too.
pub(crate) fn thaw_path(path: &CStr, until: Duration) -> i32 {
    call_in_fork(until, stdin(), &|| match open(path) {
        Ok(directory) => call(directory.as_fd(), THAW),
        Err(error) => error.raw_os_error(),
    })
}

/// Opens a directory for reading, which works on a frozen file system.
pub(crate) fn open(path: &CStr) -> rustix::io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, how, Mode::empty())
}

fn call(directory: BorrowedFd<'_>, number: u32) -> i32 {
    control(directory, number, &mut [0; 4]).err().map_or(0, Errno::raw_os_error)
}

/// Discards the unused blocks of a file system (FITRIM); returns their number of bytes.
pub(crate) fn trim(directory: &OwnedFd) -> Result<u64, Errno> {
    // struct fstrim_range: start, length and shortest extent, 64 bits each.
    let mut range = [[0; 8], [u8::MAX; 8], [0; 8]];
    control(directory.as_fd(), TRIM, range.as_flattened_mut())?;
    let [_, trimmed, _] = range;
    Ok(u64::from_ne_bytes(trimmed))
}

/// Forks; returns true in the child, which leads a new session and has /dev/null as standard
/// descriptors. The process must have a single thread.
pub(crate) fn fork() -> io::Result<bool> {
    let nothing = super::file::open("/dev/null".as_ref(), OFlags::RDWR)?;
    // SAFETY: there are no other threads.
    match unsafe { libc::fork() } {
        0 => {
            for standard in 0..3 {
                // SAFETY: no pointers.
                unsafe { libc::dup2(nothing.as_raw_fd(), standard) };
            }
            // SAFETY: a constant string.
            unsafe {
                libc::setsid();
                libc::chdir(c"/".as_ptr());
            }
            Ok(true)
        }
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(false),
    }
}
