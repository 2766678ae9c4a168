//! The ioctls that freeze, thaw and trim a file system (ioctl_fsfreeze(2), linux/fs.h), and a process that stays in memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::disk::control;
use super::fd::{pipe, read, write};

/// `_IOWR('X', 119, int)`.
const FREEZE: u32 = 0xc004_5877;
/// `_IOWR('X', 120, int)`.
const THAW: u32 = 0xc004_5878;
/// `_IOWR('X', 121, struct fstrim_range)`.
const TRIM: u32 = 0xc018_5879;

/// Locks all memory of this process, now and later: it then needs no disk to go on.
///
/// # Errors
/// Any error of mlockall(2).
pub(crate) fn stay_in_memory() -> io::Result<()> {
    // SAFETY: mlockall takes no pointers.
    let result = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Thaws the file system of an open directory; false if it was not frozen.
pub(crate) fn thaw(directory: &OwnedFd) -> bool {
    control(directory.as_fd(), THAW, &mut [0; 4]).is_ok()
}

/// Tells the disk which blocks the file system of an open directory does not use; returns how many bytes these are.
///
/// # Errors
/// Any error of ioctl(2).
pub(crate) fn trim(directory: &OwnedFd) -> Result<u64, Errno> {
    // struct fstrim_range: three numbers of 64 bits, where to begin, how far to go, and the shortest piece.
    let mut range = [[0; 8], [u8::MAX; 8], [0; 8]];
    control(directory.as_fd(), TRIM, range.as_flattened_mut())?;
    let [_, trimmed, _] = range;
    Ok(u64::from_ne_bytes(trimmed))
}

/// Freezes the file systems of open directories one after the other, up to this time since boot or the first that fails; those that are frozen
/// already or cannot be are no failure. Done by a child: it may hang, and only who does not can thaw. Returns what
/// became of each, 0 or the error's number, and the error of the next one, 0 if there is none. That is `ETIMEDOUT` if time was over or the
/// child is gone: then it may be frozen, too; the child has ended or ends once nothing holds it.
///
/// This process must have no other threads.
pub(crate) fn freeze(directories: &[OwnedFd], until: Duration) -> (Vec<i32>, i32) {
    let mut results = Vec::new();
    let (report, tell) = match pipe() {
        Ok(pipe) => pipe,
        Err(error) => return (results, error.raw_os_error()),
    };
    // SAFETY: there are no other threads, so the child may do anything; it never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: this takes no pointers. Without its parent nobody would thaw what it goes on to freeze.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
        for directory in directories {
            let frozen = control(directory.as_fd(), FREEZE, &mut [0; 4]);
            let error = frozen.err().map_or(0, Errno::raw_os_error);
            if write(&tell, &error.to_ne_bytes()).is_err() || !is_no_failure(error) {
                break;
            }
        }
        // SAFETY: ends without the destructors of what the parent has.
        unsafe { libc::_exit(0) }
    }
    drop(tell);
    let mut failure = 0;
    while failure == 0 && results.len() < directories.len() {
        let mut number = [0; 4];
        let is_told = super::readable(report.as_fd(), until)
            && read(&report, &mut number) == Ok(number.len());
        match i32::from_ne_bytes(number) {
            _ if !is_told => failure = libc::ETIMEDOUT,
            error if is_no_failure(error) => results.push(error),
            error => failure = error,
        }
    }
    if child > 0 {
        // SAFETY: the child is not reaped yet; a null pointer asks for no status.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG);
        }
    }
    (results, failure)
}

/// Whether others can still be frozen: one that is frozen already, or cannot be, is left out as qemu-ga does.
fn is_no_failure(error: i32) -> bool {
    matches!(error, 0 | libc::EBUSY | libc::EOPNOTSUPP)
}

/// Forks; true in the child, which leads a session of its own and has no descriptors but these of the caller's own making.
/// This process must have no other threads.
///
/// # Errors
/// Any error of fork(2), or of opening `/dev/null`.
pub(crate) fn fork() -> io::Result<bool> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: there are no other threads, so the child may do anything.
    match unsafe { libc::fork() } {
        0 => {
            for standard in 0..3 {
                // SAFETY: this takes no pointers.
                unsafe { libc::dup2(nothing.as_raw_fd(), standard) };
            }
            // SAFETY: neither do these.
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
