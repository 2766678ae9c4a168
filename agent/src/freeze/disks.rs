//! The file systems that can be frozen, opened.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use mote_core::freeze::filesystems::mounted;
use mote_core::report::proc::mounts::unescape;
use rustix::fs::{Mode, OFlags, open};

use crate::runtime::small_files::read_bounded;

/// Longest list of mounts, bytes.
const MOUNTS: u64 = 1 << 24;

/// In the opposite order of mounting.
#[derive(Debug, Default)]
pub(super) struct Disks {
    /// Mount points of those that are open; behind them those of others.
    pub(super) points: Vec<Vec<u8>>,
    /// What is there, open for reading alone, which no frozen file system minds: so it is still found if something is mounted over
    /// it, and cannot be unmounted while it is frozen.
    pub(super) open: Vec<OwnedFd>,
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
        for system in mounted(&mounts).iter().rev() {
            let point: Vec<u8> = unescape(system.point).collect();
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            match open(point.as_slice(), flags, Mode::empty()) {
                Ok(disk) if !system.is_covered => {
                    disks.points.insert(disks.open.len(), point);
                    disks.open.push(disk);
                }
                Ok(_) | Err(_) => disks.points.push(point),
            }
        }
        Ok(disks)
    }
}
