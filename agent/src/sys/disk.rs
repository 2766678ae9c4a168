//! System calls that enlarge a partition or a file system in the kernel.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};

/// `BLKPG` and its operation (`linux/blkpg.h`).
const BLKPG: libc::Ioctl = 0x1269;
const RESIZE_PARTITION: i32 = 3;

/// `struct blkpg_partition`; in bytes.
#[repr(C)]
struct Partition {
    /// Start and length.
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

/// Changes the length of the partition at this start in the kernel.
///
/// # Errors
/// Any error of ioctl(2).
pub(crate) fn resize_partition(disk: BorrowedFd<'_>, number: u32, place: [u64; 2]) -> Result<()> {
    let mut partition = Partition { place, number, names: [0; 128] };
    let data = (&raw mut partition).cast();
    let order = Order { operation: RESIZE_PARTITION, flags: 0, length: 0, data };
    // SAFETY: this call reads an order and the partition that it points to; both live until it has returned.
    let result = unsafe { libc::ioctl(disk.as_raw_fd(), BLKPG, &raw const order) };
    said(result)
}

/// Performs an ioctl whose number encodes the length of its argument (`asm-generic/ioctl.h`).
///
/// # Errors
/// `EINVAL` if the argument has another length; any error of ioctl(2).
#[inline(never)] // its size
pub(crate) fn control(file: BorrowedFd<'_>, number: u32, argument: &mut [u8]) -> Result<()> {
    if argument.len() != (number >> 16 & 0x3fff) as usize {
        return Err(Errno::INVAL);
    }
    let fd = file.as_raw_fd();
    // SAFETY: the argument can be read and written for as many bytes as the number says, and has no pointers in it: so
    // are all that this program calls it with, by `workers/grow` and `sys/freeze`.
    let result = unsafe { libc::ioctl(fd, number as libc::Ioctl, argument.as_mut_ptr()) };
    said(result)
}

fn said(result: i32) -> Result<()> {
    let error = || Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO);
    if result == 0 { Ok(()) } else { Err(error()) }
}
