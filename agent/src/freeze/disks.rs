//! The file systems that can be frozen, opened.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use mote_core::freeze::filesystems::mounted;
use mote_core::report::proc::mounts::unescape;

use crate::runtime::small_files::read_bounded;

/// Longest list of mounts, bytes.
const MOUNTS: u64 = 1 << 24;

/// In the opposite order of mounting.
#[derive(Debug, Default)]
pub(super) struct Disks {
    /// Their mount points.
    pub(super) points: Vec<String>,
    /// What is there, open for reading alone, which no frozen file system minds: so it is still found if something is mounted over
    /// it, and cannot be unmounted while it is frozen.
    pub(super) open: Vec<OwnedFd>,
    /// Mount points of those that cannot be opened, each after a space.
    pub(super) closed: String,
}

impl Disks {
    /// Opens all that can be.
    ///
    /// # Errors
    /// Any error of reading the list of mounts.
    #[inline(never)] // its size
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let mounts = read_bounded(&root.join("proc/self/mountinfo"), MOUNTS)?;
        let mut disks = Self::default();
        let mut how = File::options();
        how.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        for system in mounted(&mounts).iter().rev() {
            let point: Vec<u8> = unescape(system.point).collect();
            let disk = how.open(OsStr::from_bytes(&point));
            let point = String::from_utf8_lossy(&point).into_owned();
            match disk {
                Ok(disk) if !system.is_covered => {
                    disks.points.push(point);
                    disks.open.push(disk.into());
                }
                Ok(_) | Err(_) => add(&mut disks.closed, &point),
            }
        }
        Ok(disks)
    }
}

/// Adds a mount point to a list.
#[inline(never)] // its size
pub(super) fn add(list: &mut String, point: &str) {
    list.push(' ');
    list.push_str(point);
}
