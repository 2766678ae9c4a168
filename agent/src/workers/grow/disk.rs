//! Grows a disk: its partition table, its last partition in the kernel, and the file system there.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mote_core::hotplug::disk::{DiskGeometry, Last, Step, Table};
use rustix::fs::{FlockOperation, OFlags, fdatasync, flock};
use rustix::io::{pread, pwrite};

use super::filesystem::{Filesystem, Size};
use crate::runtime::is_there;
use crate::sys::disk::resize_partition;
use crate::sys::{file, sleep};
use crate::system::devices::number_of;

/// The unit of sizes in sysfs, in bytes.
const UNIT: u64 = 512;
/// Maximum number of attempts to lock a disk that another program has locked.
const TRIES: u32 = 50;
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Free space at the end of the device that is ignored, in bytes.
const NEAR: u64 = 1 << 20;

/// Why a disk was not grown.
type NotGrown = &'static str;

const FAILS: NotGrown = "the disk is locked, cannot be opened or has I/O errors";

/// The file system that has grown or would grow: device and size in bytes.
pub(super) type Grown = Option<(String, u64)>;

#[expect(clippy::struct_excessive_bools, reason = "independent answers")]
pub(super) struct Disk<'d> {
    root: &'d Path,
    /// Directory in sysfs.
    path: &'d Path,
    pub(super) name: &'d str,
    /// Size in units, and the size before growth, 0 if unknown.
    pub(super) units: u64,
    pub(super) before: u64,
    /// Whether the user named the disk. Space that was free before is then used, too.
    pub(super) is_named: bool,
    pub(super) is_dry: bool,
    /// Whether growth is expected: the disk is larger than before, or named.
    pub(super) is_due: bool,
    /// Whether the reason not to grow is temporary; otherwise it holds until the size changes.
    pub(super) may_pass: bool,
    pub(super) todo: String,
}

impl<'d> Disk<'d> {
    pub(super) fn new(root: &'d Path, path: &'d Path) -> Self {
        Self {
            root,
            path,
            name: path.file_name().and_then(|name| name.to_str()).unwrap_or_default(),
            units: number_of(path, "size"),
            before: 0,
            is_named: false,
            is_dry: false,
            is_due: false,
            may_pass: true,
            todo: String::new(),
        }
    }

    /// Returns whether the disk is neither removable nor made of other disks.
    pub(super) fn is_fixed(&self) -> bool {
        number_of(self.path, "removable") == 0 && is_there(self.path, "device")
    }

    /// Finds the file system on a device, and adds advice for it.
    fn find<'n>(&mut self, path: &Path, name: &'n str) -> Option<Filesystem<'n>> {
        let found = Filesystem::on(self.root, path, name);
        match &found {
            Some(found) => found.advise(&mut self.todo),
            None => self.todo.push_str("a tool that grows what it contains"),
        }
        found
    }

    pub(super) fn grow(&mut self, table: &mut Table) -> Result<Grown, NotGrown> {
        let (path, name) = (self.path, self.name);
        if let Some(found) = self.find(path, name) {
            let length = self.units * UNIT;
            let is_grown = self.lacks(&found, length)? && self.fill(&found, length)?;
            return Ok(is_grown.then(|| (name.to_owned(), length)));
        }
        let sector = number_of(self.path, "queue/logical_block_size");
        let ratio = (sector / UNIT).max(1);
        let (sectors, before) = (self.units / ratio, self.before / ratio);
        let sector = usize::try_from(sector).unwrap_or(0);
        let geometry = DiskGeometry { sector, sectors, before };
        let disk = self.open(OFlags::RDONLY).filter(lock).ok_or(FAILS)?;
        self.may_pass = false;
        let read = table.read(&geometry, &mut |step| access(&disk, &geometry, step));
        let last = read.ok_or("it has no valid GPT or MBR partition table")?;
        self.step(table, &geometry, &last, disk)
    }

    fn step(
        &mut self,
        table: &mut Table,
        geometry: &DiskGeometry,
        last: &Last,
        locked: OwnedFd,
    ) -> Result<Grown, NotGrown> {
        let joint =
            if self.name.as_bytes().last().is_some_and(u8::is_ascii_digit) { "p" } else { "" };
        let name = format!("{}{joint}{}", self.name, last.number);
        let path = self.path.join(&name);
        let [start, there] = ["start", "size"].map(|place| number_of(&path, place) * UNIT);
        self.todo = format!("growpart /dev/{} {}; ", self.name, last.number);
        let found = self.find(&path, &name);
        let place = |sector: u64| sector * geometry.sector as u64;
        // A file system that is larger than its partition shows that the host has overwritten the
        // guest's table with an older one.
        let size = found.as_ref().and_then(Filesystem::size);
        let has_more = |size: &Size| size.bytes > place(last.end + 1 - last.first);
        let is_ours = last.was_at_end || size.as_ref().is_some_and(has_more);
        let has_room = last.has_room(geometry);
        if has_room && !is_ours && !self.is_named {
            self.todo = format!("mote-agent grow {}", self.name);
            return Err("the space after its last partition was already free");
        }
        let is_written = has_room || last.is_torn;
        self.is_due |= is_written;
        if !self.is_due {
            // A file system smaller than its partition may be intended.
            return Ok(None);
        }
        if is_written && last.is_reserved {
            return Err("its table reserves the space after the last usable block");
        }
        if start != place(last.first) {
            return Err("the kernel uses another partition table");
        }
        let found = found.ok_or("no ext4, xfs or btrfs is mounted on its last partition")?;
        let end = if is_written { last.most } else { last.end };
        let length = place(end + 1 - last.first);
        if !self.lacks(&found, length)? && !is_written {
            return Ok(None);
        }
        let grown = Some((name.clone(), length));
        if self.is_dry {
            return Ok(grown);
        }
        self.may_pass = true;
        let disk = self.open(OFlags::RDWR).ok_or(FAILS)?;
        let resize = |length| resize_partition(disk.as_fd(), last.number, [start, length]).is_ok();
        let step = &mut |step: Step<'_>| access(&disk, geometry, step);
        // Change the kernel's table first: the kernel may refuse, and a reboot undoes its change.
        if length > there && !resize(length) {
            return Err("the kernel rejects a longer partition");
        }
        if is_written && !table.grow(geometry, last, step) {
            let _as_before = length > there && resize(there);
            return Err(FAILS);
        }
        // Unlock the disk for others, because a frozen file system blocks here.
        drop(locked);
        let is_grown = self.fill(&found, length)?;
        if is_written && lock(&disk) {
            let _next_time = table.finish(geometry, step);
        }
        Ok(grown.filter(|_| is_written || is_grown))
    }

    /// Returns whether a file system is smaller than its device (`length` bytes) and can grow.
    fn lacks(&mut self, found: &Filesystem<'_>, length: u64) -> Result<bool, NotGrown> {
        let size = found
            .size()
            .ok_or("its file system is not found at its mount point, or has several devices")?;
        let is_smaller = size.bytes + NEAR <= length;
        self.is_due |= is_smaller;
        if is_smaller && !found.is_writable {
            return Err("it is mounted read-only");
        }
        Ok(is_smaller)
    }

    fn fill(&self, found: &Filesystem<'_>, length: u64) -> Result<bool, NotGrown> {
        let refused = "the file system refuses to grow; see dmesg";
        if self.is_dry { Ok(true) } else { found.grow(length).map_err(|_| refused) }
    }

    /// Opens the disk with O_DIRECT, because the cache may be older than what the host has written.
    fn open(&self, how: OFlags) -> Option<OwnedFd> {
        let device = format!("/dev/{}", self.name);
        Some(file::open(device.as_ref(), how | OFlags::DIRECT).ok()?.into())
    }
}

/// Locks the disk against other programs that change its table
/// (<https://systemd.io/BLOCK_DEVICE_LOCKING>).
fn lock(disk: &OwnedFd) -> bool {
    for _ in 0..TRIES {
        if flock(disk, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        sleep(PAUSE);
    }
    false
}

fn access(disk: &OwnedFd, geometry: &DiskGeometry, step: Step<'_>) -> bool {
    let place = |at: u64| at * geometry.sector as u64;
    match step {
        Step::Read(at, into) => pread(disk, &mut *into, place(at)) == Ok(into.len()),
        Step::Write(at, bytes) => pwrite(disk, bytes, place(at)) == Ok(bytes.len()),
        Step::Flush => fdatasync(disk).is_ok(),
    }
}
