//! Descriptors and their operations. The simulation replaces this module.

pub(crate) use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{Gid, Uid, fchown};
use rustix::io::Result;
pub(crate) use rustix::io::write;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

/// Reads some bytes; returns 0 at the end.
pub(crate) fn read(from: impl AsFd, into: &mut [u8]) -> Result<usize> {
    rustix::io::read(from, into)
}

/// Appends bytes to the vector, up to its capacity; returns 0 at the end.
pub(crate) fn append(from: impl AsFd, to: &mut Vec<u8>) -> Result<usize> {
    rustix::io::read(from, spare_capacity(to))
}

/// Errors: any error of pipe(2).
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC)
}

/// Changes the owner of an open file. `u32::MAX` leaves user or group unchanged.
pub(crate) fn give(fd: impl AsFd, user: u32, group: u32) -> Result<()> {
    let user = (user != u32::MAX).then(|| Uid::from_raw(user));
    let group = (group != u32::MAX).then(|| Gid::from_raw(group));
    fchown(fd, user, group)
}

pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Errors: any error of ioctl(2).
pub(crate) fn unblock(fd: impl AsFd) -> Result<()> {
    rustix::io::ioctl_fionbio(fd, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn give_keeps_the_owner_for_the_highest_id() {
        let (read, _write) = pipe().unwrap();
        let owner = || rustix::fs::fstat(&read).map(|about| (about.st_uid, about.st_gid));
        let before = owner();
        assert_eq!(give(&read, u32::MAX, u32::MAX), Ok(()));
        assert_eq!(owner(), before);
    }
}
