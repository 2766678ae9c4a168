//! Grows the last partition of each enlarged disk and its file system: `mote-agent grow`, or
//! `mote-agent grow-worker` at the agent's start and after each disk event if the guest's policy
//! allows it. It runs in its own process, because writes may hang, and a frozen file system does
//! not grow until it is thawed.

mod disk;
mod filesystem;

use std::path::{Path, PathBuf};

use mote_core::hotplug::disk::Table;
use rustix::process::geteuid;

use self::disk::Disk;
use crate::print;
use crate::runtime::{is_there, log, read_bounded, run_dir, write_small};
use crate::system::devices::{entries, identity};

/// Paths, relative to `/`, of other programs that grow disks: growpart, and systemd-repart if it is
/// configured.
const OTHERS: [&str; 5] =
    ["usr/bin/growpart", "usr/sbin/growpart", "etc/repart.d", "run/repart.d", "usr/lib/repart.d"];
/// Key of the record that the log names the other program. No disk has this identity.
const TOLD: u64 = 0;

fn other(root: &Path) -> Option<&'static str> {
    OTHERS.into_iter().find(|other| is_there(root, other))
}

/// Grows all disks, unless another program does, which is logged once per boot.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn work(root: &Path) -> u8 {
    let mut sizes = Sizes::read(root);
    if let Some(other) = other(root) {
        if sizes.of(TOLD) == 0 {
            log::info(format_args!("disks are not grown automatically: /{other} exists"));
            sizes.note(TOLD, 1);
        }
        return 0;
    }
    let mut table = Box::<Table>::default();
    for path in entries(&root.join("sys/block")) {
        let mut disk = Disk::new(root, &path);
        let id = identity(&path);
        disk.before = sizes.of(id);
        if !disk.is_fixed() || disk.before == disk.units {
            continue;
        }
        let is_new = disk.before != 0 && disk.before < disk.units;
        disk.is_due = is_new;
        let grown = disk.grow(&mut table);
        let name = disk.name;
        match &grown {
            Ok(Some((name, length))) => {
                log::info(format_args!("{name} and its file system grew to {} MiB", length >> 20));
            }
            Ok(None) => {}
            Err(why) => {
                let log = if disk.is_due { log::warn } else { log::debug };
                log(format_args!("disk {name} is not grown: {why}; run: {}", disk.todo));
            }
        }
        // Retry after a temporary failure on an enlarged disk.
        let is_again = is_new && grown.is_err() && disk.may_pass;
        if !is_again {
            sizes.note(id, disk.units);
        }
    }
    0
}

/// Grows the named disk, or each enlarged one; a dry run prints what it would do.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn by_hand(root: &Path, named: Option<&str>, is_dry: bool) -> u8 {
    let named = named.map(|name| name.strip_prefix("/dev/").unwrap_or(name));
    if !geteuid().is_root() {
        print::complain(format_args!("only root can grow disks"));
        return 1;
    }
    if let Some(other) = other(root) {
        print::complain(format_args!("note: /{other} exists, which may grow disks, too"));
    }
    let sizes = Sizes::read(root);
    let (mut table, mut is_done, mut has_failed) = (Box::<Table>::default(), false, false);
    for path in entries(&root.join("sys/block")) {
        let mut disk = Disk::new(root, &path);
        let name = disk.name;
        if named.map_or(!disk.is_fixed(), |named| named != name) {
            continue;
        }
        is_done = true;
        disk.before = sizes.of(identity(&path));
        (disk.is_named, disk.is_due, disk.is_dry) = (named.is_some(), named.is_some(), is_dry);
        let printed = match disk.grow(&mut table) {
            Ok(Some((name, length))) => {
                let grow = if is_dry { "would grow" } else { "grew" };
                let mib = length >> 20;
                print::out(format_args!("{name} and its file system {grow} to {mib} MiB\n"))
            }
            Ok(None) => print::out(format_args!("{name}: nothing to do\n")),
            Err(why) => {
                has_failed |= disk.is_due;
                print::out(format_args!("{name} is not grown: {why}; run: {}\n", disk.todo))
            }
        };
        has_failed |= printed.is_err();
    }
    if let (Some(named), false) = (named, is_done) {
        print::complain(format_args!("/sys/block has no disk {named}"));
        return 1;
    }
    u8::from(has_failed)
}

/// Maximum size of the file, in bytes.
const LONGEST: u64 = 1 << 20;

/// The disk sizes after the last worker: per disk, 8 bytes of the sysfs identity and 8 of the size,
/// in native order. Of several records for a disk, the last one counts.
struct Sizes {
    path: PathBuf,
    all: Vec<u8>,
}

impl Sizes {
    fn read(root: &Path) -> Self {
        let path = root.join(run_dir::SIZES);
        let all = read_bounded(&path, LONGEST).unwrap_or_default();
        Self { path, all }
    }

    fn of(&self, id: u64) -> u64 {
        let mut found = 0;
        for note in self.all.chunks_exact(16) {
            if note.starts_with(&id.to_ne_bytes()) {
                found = note.last_chunk().map_or(0, |size| u64::from_ne_bytes(*size));
            }
        }
        found
    }

    fn note(&mut self, id: u64, size: u64) {
        self.all.extend_from_slice([id.to_ne_bytes(), size.to_ne_bytes()].as_flattened());
        let _next_time = write_small(&self.path, &self.all);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::{Scratch, run_dir, scratch};

    const NAME: &str = "mote-none";

    fn machine(name: &str) -> Scratch {
        let root = scratch(name);
        fs::create_dir_all(root.join(run_dir::DIRECTORY)).unwrap();
        plug(&root);
        root
    }

    fn plug(root: &Path) {
        fs::create_dir_all(root.join("sys/block").join(NAME).join("device")).unwrap();
        crate::runtime::put(root, &format!("sys/block/{NAME}/size"), "2048\n");
    }

    /// Runs a worker; returns the size that it stored.
    fn noted(root: &Path) -> u64 {
        assert_eq!(work(root), 0);
        Sizes::read(root).of(identity(&root.join("sys/block").join(NAME)))
    }

    #[test]
    fn stores_a_size_once_growth_is_complete() {
        let root = machine("grow-noted");
        assert_eq!(noted(&root), 2048, "no event reported that it grew");
        let size = root.join("sys/block").join(NAME).join("size");
        fs::write(&size, "4096\n").unwrap();
        for _ in 0..3 {
            assert_eq!(noted(&root), 2048, "it has not been grown");
        }
        fs::write(&size, "1024\n").unwrap();
        assert_eq!(noted(&root), 1024, "it has become smaller");
    }

    #[test]
    fn distinguishes_disks_of_the_same_name() {
        let root = machine("grow-another");
        assert_eq!(noted(&root), 2048);
        let (disk, away) = (root.join("sys/block").join(NAME), root.join("away"));
        // Keep the file, so that its number is not reused; sysfs does not reuse numbers, either.
        fs::rename(&disk, &away).unwrap();
        plug(&root);
        fs::write(disk.join("size"), "4096\n").unwrap();
        assert_eq!(noted(&root), 4096, "no event reported that it grew");
        assert_eq!(Sizes::read(&root).of(identity(&away)), 2048);
    }

    #[test]
    fn leaves_disks_to_other_programs_and_logs_that_once() {
        for (index, other) in OTHERS.into_iter().enumerate() {
            let root = machine(&format!("grow-others-{index}"));
            fs::create_dir_all(root.join(other)).unwrap();
            for _ in 0..2 {
                assert_eq!(noted(&root), 0, "{other}");
                assert_eq!(fs::read(root.join(run_dir::SIZES)).unwrap().len(), 16, "{other}");
            }
        }
    }
}
