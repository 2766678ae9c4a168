//! `mote-agent grow start|live`: grows the last partition of each disk that has become larger, and the file system on it.
//! Writes to disks may hang, and a file system that is frozen does not grow until it is thawed.

mod filesystem;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use mote_core::follow::disk::{Shape, Step, Table};
use mote_core::report::proc::number;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, fdatasync, flock, open};
use rustix::io::{pread, pwrite};

use self::filesystem::Filesystem;
use crate::runtime::small_files::{is_there, text_of};
use crate::runtime::{log, run_dir};
use crate::sys::disk::resize_partition;
use crate::system::devices::entries;

/// What else may grow disks when a system starts. (What systemd does for `x-systemd.growfs` is no other than the end of what is
/// done here.)
const OTHERS: [&str; 5] = [
    "usr/bin/cloud-init",
    "usr/bin/growpart",
    "usr/sbin/growpart",
    "etc/repart.d",
    "usr/lib/repart.d",
];
/// The unit of sizes in sysfs, bytes.
const UNIT: u64 = 512;

/// Grows what there is to grow: after an event, or at an agent's start.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(root: &Path, is_live: bool) -> ExitCode {
    let is_left = !is_live && OTHERS.iter().any(|other| is_there(root, other));
    // The disks' sizes as the last worker has seen them.
    let sizes = root.join(run_dir::DISKS);
    let _there = fs::create_dir(&sizes);
    let mut table = Box::<Table>::default();
    for path in entries(&root.join("sys/block")) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // No media that somebody changes, nothing that is made of other disks.
        if number_of(&path, "removable") != 0 || !is_there(&path, "device") {
            continue;
        }
        let (before, units) = (number_of(&sizes, name), number_of(&path, "size"));
        let _next_time = fs::write(sizes.join(name), units.to_string());
        let is_news = before != 0 && before < units;
        if is_news || before == 0 && !is_left {
            let mut disk = Disk { root, path: &path, name, before, is_news, todo: String::new() };
            if let Some(why) = disk.grow(&mut table, units) {
                let log = if disk.is_news { log::warn } else { log::debug };
                log(format_args!(
                    "disk {name} has room that is not used: {why}; to do: {}",
                    disk.todo
                ));
            }
        }
    }
    ExitCode::SUCCESS
}

/// A number in sysfs; 0 if there is none.
#[inline(never)] // its size
fn number_of(device: &Path, attribute: &str) -> u64 {
    let text = text_of(device, attribute);
    number(text.trim_ascii_end().as_bytes()).unwrap_or(0)
}

/// A disk.
struct Disk<'d> {
    root: &'d Path,
    /// Its directory in sysfs.
    path: &'d Path,
    name: &'d str,
    /// Its size before it grew, in units; 0 if it is not known.
    before: u64,
    /// Whether it is known to have grown.
    is_news: bool,
    /// What a user can do in the agent's stead.
    todo: String,
}

impl Disk<'_> {
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
    fn grow(&mut self, table: &mut Table, units: u64) -> Option<&'static str> {
        if let Some(found) = self.find(self.path, self.name) {
            return fill(&found, self.name, units);
        }
        let sector = number_of(self.path, "queue/logical_block_size");
        let ratio = (sector / UNIT).max(1);
        let (sectors, before) = (units / ratio, self.before / ratio);
        let shape = Shape { sector: usize::try_from(sector).unwrap_or(0), sectors, before };
        let device = format!("/dev/{}", self.name);
        // Past the kernel's cache, which does not know what the host has written.
        let disk = open(&*device, OFlags::DIRECT, Mode::empty()).ok()?;
        // Others that change the table wait meanwhile (<https://systemd.io/BLOCK_DEVICE_LOCKING>).
        let _locked = flock(&disk, FlockOperation::LockExclusive);
        let Some(last) = table.read(&shape, &mut |step| access(&disk, sector, step)) else {
            return Some("no partition is known");
        };
        let joint = if self.name.as_bytes().last()?.is_ascii_digit() { "p" } else { "" };
        let name = format!("{}{joint}{}", self.name, last.number);
        let path = self.path.join(&name);
        let (start, there) = (number_of(&path, "start"), number_of(&path, "size"));
        // Where the kernel has more, the host has written the table that it had read before the guest wrote it.
        let is_ours = last.was_at_end || there > (last.end + 1 - last.first) * ratio;
        let has_room = last.has_room(&shape);
        self.is_news |= has_room && is_ours;
        self.todo = format!("growpart /dev/{} {}; ", self.name, last.number);
        let found = self.find(&path, &name);
        if has_room && !is_ours {
            return Some("it was free before");
        }
        if !last.is_linux || start != last.first * ratio {
            return Some("the last partition is not Linux'");
        }
        let Some(found) = found else {
            return Some("no ext4, xfs or btrfs is mounted there");
        };
        if !found.is_writable {
            return Some("it is mounted read-only");
        }
        if has_room || last.is_torn {
            let disk = open(&*device, OFlags::DIRECT | OFlags::RDWR, Mode::empty()).ok()?;
            if !table.grow(&shape, &last, &mut |step| access(&disk, sector, step)) {
                return Some("the disk cannot be written");
            }
        }
        let end = if has_room { last.most } else { last.end };
        let length = (end + 1 - last.first) * ratio;
        let place = [start * UNIT, length * UNIT];
        if length > there && resize_partition(disk.as_fd(), last.number, place).is_err() {
            return Some("the kernel does not take it");
        }
        fill(&found, &name, length)
    }
}

/// Grows a file system to so many units.
#[inline(never)] // its size
fn fill(found: &Filesystem, name: &str, units: u64) -> Option<&'static str> {
    match found.grow(units * UNIT) {
        Ok(true) => {
            log::info(format_args!("{name} and what is on it have {} MiB now", units >> 11))
        }
        Ok(false) => {}
        Err(_) => return Some("the file system does not take it (dmesg)"),
    }
    None
}

fn access(disk: &OwnedFd, sector: u64, step: Step<'_>) -> bool {
    match step {
        Step::Read(at, into) => pread(disk, &mut *into, at * sector) == Ok(into.len()),
        Step::Write(at, bytes) => pwrite(disk, bytes, at * sector) == Ok(bytes.len()),
        Step::Flush => fdatasync(disk).is_ok(),
    }
}
