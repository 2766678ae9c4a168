//! `mote-agent grow start|live`: grows the last partition of each disk that has become larger, and the file system on it.
//! Writes to disks may hang, and a file system that is frozen does not grow until it is thawed.

mod disk;
mod filesystem;
mod sizes;

use std::path::Path;
use std::process::ExitCode;

use mote_core::follow::disk::{Duty, Table};

use self::disk::{Disk, Left};
use self::sizes::Sizes;
use crate::runtime::log;
use crate::runtime::small_files::is_there;
use crate::system::devices::{entries, identity, number_of};

/// What else may grow disks when a system starts. (What systemd does for `x-systemd.growfs` is no other than the end of what is
/// done here.)
const OTHERS: [&str; 5] = [
    "usr/bin/cloud-init",
    "usr/bin/growpart",
    "usr/sbin/growpart",
    "etc/repart.d",
    "usr/lib/repart.d",
];

/// Grows what there is to grow: after an event, or at an agent's start.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(root: &Path, is_live: bool) -> ExitCode {
    let has_others = OTHERS.iter().any(|other| is_there(root, other));
    let mut sizes = Sizes::read(root);
    let mut table = Box::<Table>::default();
    for path in entries(&root.join("sys/block")) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // No media that somebody changes, nothing that is made of other disks.
        if number_of(&path, "removable") != 0 || !is_there(&path, "device") {
            continue;
        }
        let (id, units) = (identity(&path), number_of(&path, "size"));
        let before = sizes.of(id);
        let duty = Duty::of(before, units, is_live, has_others);
        let mut disk = Disk::new(root, &path, name, before, duty);
        let left = if duty > Duty::Note { disk.grow(&mut table, units).err() } else { None };
        if let Some(Left(why)) = left {
            let log = if disk.duty == Duty::Grow { log::warn } else { log::debug };
            log(format_args!("disk {name} has room that is not used: {why}; to do: {}", disk.todo));
        }
        // What was cut off is done again, and what has failed once it is known to be new.
        let is_again = duty == Duty::Grow && left.is_some() && disk.may_pass;
        if duty > Duty::None && !is_again {
            sizes.note(id, units);
        }
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::run_dir;
    use crate::runtime::scratch::{Scratch, scratch};

    /// A name that no disk has.
    const NAME: &str = "mote-none";

    fn machine(name: &str) -> Scratch {
        let root = scratch(name);
        fs::create_dir_all(root.join(run_dir::DIRECTORY)).unwrap();
        plug(&root);
        root
    }

    fn plug(root: &Path) {
        let disk = root.join("sys/block").join(NAME);
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::write(disk.join("size"), "2048\n").unwrap();
    }

    /// The size that is noted after a worker.
    fn noted(root: &Path, is_live: bool) -> u64 {
        assert_eq!(run(root, is_live), ExitCode::SUCCESS);
        Sizes::read(root).of(identity(&root.join("sys/block").join(NAME)))
    }

    #[test]
    fn a_size_is_noted_once_nothing_is_left_to_do() {
        let root = machine("grow-noted");
        assert_eq!(noted(&root, true), 2048, "it is as it was plugged in");
        let size = root.join("sys/block").join(NAME).join("size");
        fs::write(&size, "4096\n").unwrap();
        for is_live in [true, false, true] {
            assert_eq!(noted(&root, is_live), 2048, "it has not been grown");
        }
        fs::write(&size, "1024\n").unwrap();
        assert_eq!(noted(&root, true), 1024, "it has become smaller");
    }

    #[test]
    fn another_disk_of_the_same_name_is_not_taken_for_it() {
        let root = machine("grow-another");
        assert_eq!(noted(&root, true), 2048);
        let (disk, away) = (root.join("sys/block").join(NAME), root.join("away"));
        // Kept, so that its number is not given again, as none is in sysfs.
        fs::rename(&disk, &away).unwrap();
        plug(&root);
        fs::write(disk.join("size"), "4096\n").unwrap();
        assert_eq!(noted(&root, true), 4096, "it is as it was plugged in");
        assert_eq!(Sizes::read(&root).of(identity(&away)), 2048);
    }
}
