//! The ioctls that freeze, thaw and trim a file system (ioctl_fsfreeze(2), linux/fs.h), and a process that stays in memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// `_IOWR('X', 119, int)`.
const FREEZE: libc::Ioctl = 0xc004_5877_u32 as libc::Ioctl;
/// `_IOWR('X', 120, int)`.
const THAW: libc::Ioctl = 0xc004_5878_u32 as libc::Ioctl;
/// `_IOWR('X', 121, struct fstrim_range)`.
const TRIM: libc::Ioctl = 0xc018_5879_u32 as libc::Ioctl;

/// Locks all memory of this process, now and later: it then needs no disk to go on.
///
/// # Errors
/// Any error of mlockall(2).
pub(crate) fn stay_in_memory() -> io::Result<()> {
    // SAFETY: mlockall takes no pointers.
    let result = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Thaws the file system of an open directory; `EINVAL` if it is not frozen.
///
/// # Errors
/// Any error of ioctl(2).
pub(crate) fn thaw(directory: &OwnedFd) -> Result<(), Errno> {
    order(directory, THAW)
}

fn order(directory: &OwnedFd, what: libc::Ioctl) -> Result<(), Errno> {
    // SAFETY: these take a number, which is not used.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), what, 0) };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

fn errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Tells the disk which blocks the file system of an open directory does not use; returns how many bytes these are.
///
/// # Errors
/// Any error of ioctl(2).
pub(crate) fn trim(directory: &OwnedFd) -> Result<u64, Errno> {
    // struct fstrim_range: where to begin, how far to go, and the shortest piece.
    let mut range = [0, u64::MAX, 0];
    // SAFETY: the kernel reads and writes three numbers of 64 bits.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), TRIM, &raw mut range) };
    let [_, trimmed, _] = range;
    if result == 0 { Ok(trimmed) } else { Err(errno()) }
}

/// Freezes the file systems of open directories one after the other, up to the first that fails; those that are frozen
/// already or cannot be are no failure. Done by a child: it may hang, and only who does not can thaw. Returns what
/// became of each, 0 or the error's number, with fewer results if time was over or the child is gone. In that case the one after the last may
/// be frozen, too; the child has ended or ends once nothing holds it.
///
/// This process must have no other threads.
pub(crate) fn freeze(directories: &[OwnedFd], limit: Duration) -> Vec<i32> {
    let mut results = Vec::with_capacity(directories.len());
    let Ok((report, tell)) = pipe_with(PipeFlags::CLOEXEC) else { return results };
    // SAFETY: there are no other threads, so the child may do anything; it never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: this takes no pointers. Without its parent nobody would thaw what it goes on to freeze.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
        for directory in directories {
            let error = order(directory, FREEZE).err().map_or(0, Errno::raw_os_error);
            let told = rustix::io::write(&tell, &error.to_ne_bytes());
            if told.is_err() || !is_no_failure(error) {
                break;
            }
        }
        // SAFETY: ends without the destructors of what the parent has.
        unsafe { libc::_exit(0) }
    }
    drop(tell);
    let until = super::since_boot() + limit;
    while results.len() < directories.len() {
        let left = until.saturating_sub(super::since_boot());
        let left = Timespec::try_from(left).unwrap_or_default();
        let ready = poll(&mut [PollFd::new(&report, PollFlags::IN)], Some(&left));
        if ready == Err(Errno::INTR) {
            continue;
        }
        let mut number = [0; 4];
        if ready != Ok(1) || rustix::io::read(&report, &mut number) != Ok(number.len()) {
            break;
        }
        results.push(i32::from_ne_bytes(number));
    }
    if child > 0 {
        // SAFETY: the child is not reaped yet; a null pointer asks for no status.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG);
        }
    }
    results
}

/// Whether others can still be frozen: one that is frozen already, or cannot be, is left out as qemu-ga does.
pub(crate) fn is_no_failure(error: i32) -> bool {
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
            for standard in 0..=2 {
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
