//! System calls that enlarge a partition or file system in the kernel.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};

/// `BLKPG` and its operation (`linux/blkpg.h`).
const BLKPG: libc::Ioctl = 0x1269;
const RESIZE_PARTITION: i32 = 3;

/// `struct blkpg_partition`.
#[repr(C)]
struct Partition {
    /// Start and length of the partition, in bytes.
    place: [u64; 2],
    number: u32,
    names: [u8; 128],
}

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct Order {
    operation: i32,
    flags: i32,
    length: i32,
    data: *mut c_void,
}

/// Changes the length of a partition in the kernel; `place` is start and length in bytes.
pub(crate) fn resize_partition(disk: BorrowedFd<'_>, number: u32, place: [u64; 2]) -> Result<()> {
    let mut partition = Partition { place, number, names: [0; 128] };
    let data = (&raw mut partition).cast();
    let order = Order { operation: RESIZE_PARTITION, flags: 0, length: 0, data };
    // SAFETY: the kernel reads `order` and the partition that it points to; both outlive the call.
    said(unsafe { libc::ioctl(disk.as_raw_fd(), BLKPG, &raw const order) })
}

/// Performs an ioctl whose number encodes the length of its argument (`asm-generic/ioctl.h`).
/// Errors: `EINVAL` if the argument has another length; any error of ioctl(2).
pub(crate) fn control(file: BorrowedFd<'_>, number: u32, argument: &mut [u8]) -> Result<()> {
    if argument.len() != (number >> 16 & 0x3fff) as usize {
        return Err(Errno::INVAL);
    }
    let fd = file.as_raw_fd();
    // SAFETY: the argument is readable and writable for the length that the number encodes. The
    // callers, `workers/grow` and `sys/freeze`, pass structures without pointers.
    said(unsafe { libc::ioctl(fd, number as libc::Ioctl, argument.as_mut_ptr()) })
}

fn said(result: i32) -> Result<()> {
    super::done(result).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
