//! A disk: its table, its last partition in the kernel, and the file system on that or on the whole disk.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mote_core::follow::disk::{Duty, Last, Shape, Step, Table};
use rustix::fs::{FlockOperation, Mode, OFlags, fdatasync, flock, open};
use rustix::io::{pread, pwrite};

use super::filesystem::Filesystem;
use crate::runtime::log;
use crate::sys::disk::resize_partition;
use crate::sys::sleep;
use crate::system::devices::number_of;

/// The unit of sizes in sysfs, bytes.
const UNIT: u64 = 512;
/// How often a lock is tried that another program has, and the time between.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(200);

/// Why a disk is left as it is.
#[derive(Debug)]
pub(super) struct Left(pub(super) &'static str);

const FAILS: Left = Left("it is locked, or fails");

pub(super) struct Disk<'d> {
    root: &'d Path,
    /// Its directory in sysfs.
    path: &'d Path,
    name: &'d str,
    /// Its size before it grew, in units; 0 if it is not known.
    before: u64,
    /// What is done; once it is known to have grown, that is to grow it.
    pub(super) duty: Duty,
    /// Whether it is left for something that may pass, and else as long as it has this size.
    pub(super) may_pass: bool,
    /// What a user can do in the agent's stead.
    pub(super) todo: String,
}

impl<'d> Disk<'d> {
    pub(super) fn new(
        root: &'d Path,
        path: &'d Path,
        name: &'d str,
        before: u64,
        duty: Duty,
    ) -> Self {
        Self { root, path, name, before, duty, may_pass: true, todo: String::new() }
    }

    /// The file system on a device, and what a user does for that.
    fn find(&mut self, path: &Path, name: &str) -> Option<Filesystem> {
        let found = Filesystem::on(self.root, path);
        match &found {
            Some(found) => found.advise(name, &mut self.todo),
            None => self.todo.push_str("the tool for what is there"),
        }
        found
    }

    /// Does all; says why not.
    #[inline(never)] // its size
    pub(super) fn grow(&mut self, table: &mut Table, units: u64) -> Result<(), Left> {
        if let Some(found) = self.find(self.path, self.name) {
            // That the disk was smaller nothing else tells; nor is there a partition that somebody means to make smaller next.
            return if self.duty >= Duty::Look { fill(&found, self.name, units) } else { Ok(()) };
        }
        let sector = number_of(self.path, "queue/logical_block_size");
        let ratio = (sector / UNIT).max(1);
        let (sectors, before) = (units / ratio, self.before / ratio);
        let shape = Shape { sector: usize::try_from(sector).unwrap_or(0), sectors, before };
        let disk = self.open(OFlags::RDONLY).filter(lock).ok_or(FAILS)?;
        self.may_pass = false;
        let read = table.read(&shape, &mut |step| access(&disk, &shape, step));
        let last = read.ok_or(Left("no partition is known"))?;
        if self.duty == Duty::Finish && !last.is_torn {
            return Ok(());
        }
        self.follow(table, &shape, &last, disk)
    }

    /// Does it for the last partition, with the disk locked.
    fn follow(
        &mut self,
        table: &mut Table,
        shape: &Shape,
        last: &Last,
        locked: OwnedFd,
    ) -> Result<(), Left> {
        let ratio = (shape.sector as u64 / UNIT).max(1);
        let joint =
            if self.name.as_bytes().last().is_some_and(u8::is_ascii_digit) { "p" } else { "" };
        let name = format!("{}{joint}{}", self.name, last.number);
        let path = self.path.join(&name);
        let (start, there) = (number_of(&path, "start"), number_of(&path, "size"));
        // Where the kernel has more, the host has written the table that it had read before the guest wrote it.
        let is_ours = last.was_at_end || there > (last.end + 1 - last.first) * ratio;
        let has_room = last.has_room(shape);
        if has_room && is_ours || last.is_torn {
            self.duty = Duty::Grow;
        }
        self.todo = format!("growpart /dev/{} {}; ", self.name, last.number);
        let found = self.find(&path, &name);
        if has_room && !is_ours {
            return Err(Left("it was free before"));
        }
        if !last.is_linux || start != last.first * ratio {
            return Err(Left("the last partition is not Linux'"));
        }
        let found = found.ok_or(Left("no ext4, xfs or btrfs is mounted there"))?;
        if !found.is_writable {
            return Err(Left("it is mounted read-only"));
        }
        let is_written = has_room || last.is_torn;
        let end = if is_written { last.most } else { last.end };
        let length = (end + 1 - last.first) * ratio;
        let is_longer = length > there;
        if self.duty < Duty::Grow && !is_longer {
            // Where it is smaller than its partition, somebody may have meant it.
            return Ok(());
        }
        self.may_pass = true;
        let disk = self.open(OFlags::RDWR).ok_or(FAILS)?;
        let step = &mut |step: Step<'_>| access(&disk, shape, step);
        if is_written && !table.grow(shape, last, step) {
            return Err(FAILS);
        }
        let place = [start * UNIT, length * UNIT];
        if is_longer && resize_partition(disk.as_fd(), last.number, place).is_err() {
            return Err(Left("the kernel does not take it"));
        }
        // It may be frozen, and then waits: others may have the disk meanwhile.
        drop(locked);
        fill(&found, &name, length)?;
        if is_written && lock(&disk) {
            let _next_time = table.finish(shape, step);
        }
        Ok(())
    }

    /// Opens it past the kernel's cache, which does not know what the host has written.
    fn open(&self, how: OFlags) -> Option<OwnedFd> {
        let device = format!("/dev/{}", self.name);
        open(&*device, how | OFlags::DIRECT, Mode::empty()).ok()
    }
}

/// Has others that change a disk's table wait meanwhile (<https://systemd.io/BLOCK_DEVICE_LOCKING>), but not udev, which reads it: it
/// is whole at each moment.
#[inline(never)] // its size
fn lock(disk: &OwnedFd) -> bool {
    for _ in 0..TRIES {
        if flock(disk, FlockOperation::NonBlockingLockShared).is_ok() {
            return true;
        }
        sleep(PAUSE);
    }
    false
}

/// Grows a file system to so many units.
#[inline(never)] // its size
fn fill(found: &Filesystem, name: &str, units: u64) -> Result<(), Left> {
    if found.grow(units * UNIT).map_err(|_| Left("the file system does not take it (dmesg)"))? {
        log::info(format_args!("{name} and what is on it have {} MiB now", units >> 11));
    }
    Ok(())
}

fn access(disk: &OwnedFd, shape: &Shape, step: Step<'_>) -> bool {
    let place = |at: u64| at * shape.sector as u64;
    match step {
        Step::Read(at, into) => pread(disk, &mut *into, place(at)) == Ok(into.len()),
        Step::Write(at, bytes) => pwrite(disk, bytes, place(at)) == Ok(bytes.len()),
        Step::Flush => fdatasync(disk).is_ok(),
    }
}
