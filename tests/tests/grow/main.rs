//! `mote-agent grow` on disks that are files, and its failures.
#![allow(clippy::unwrap_used)] // in helpers too: all of this is a test

mod disk;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use disk::{Disk, GPT, MIB, NEW, OLD, disks, grow, kinds, ok, run, size};
use mote_tests::agent;

#[test]
fn grows_each_file_system_at_any_mount_point_name() {
    let Some(scratch) = disks("grows_each_file_system_at_any_mount_point_name") else { return };
    for kind in kinds() {
        let point = scratch.0.join("My\tDisk\n\\040");
        let disk = Disk::with(&scratch.0, "disk", kind, &point);
        disk.resize(NEW);
        let table = disk.table();
        let (code, said) = disk.grow(&["--dry-run"]);
        let expected =
            format!("{}p1 and its file system would grow to {} MiB\n", disk.name, NEW - 2);
        assert_eq!((code, said.as_str()), (Some(0), &*expected));
        assert!(disk.table() == table && disk.length() < OLD * MIB);
        let (code, said) = grow(&[&*format!("/dev/{}", disk.name)]);
        assert_eq!((code, said), (Some(0), expected.replace("would grow", "grew")));
        assert!(size(&point) > NEW * 8 / 10, "{kind}: {}", size(&point));
        ok("sfdisk --verify", &disk.device());
        let (code, said) = disk.grow(&[]);
        assert_eq!((code, said), (Some(0), format!("{}: nothing to do\n", disk.name)));
    }
}

#[test]
fn restores_the_table_if_the_kernel_refuses() {
    let Some(scratch) = disks("restores_the_table_if_the_kernel_refuses") else { return };
    let point = scratch.0.join("point");
    for script in [GPT, "label: dos\nstart=2048, type=83\n"] {
        // The kernel knows another partition behind it, which the table lacks.
        let disk = Disk::new(&scratch.0, "disk", 512, script);
        let partition = disk.partition();
        let disk = disk.mounted(&partition, "ext4", &point);
        disk.resize(NEW);
        let place = (OLD + 20) * MIB / 512;
        disk.tell(&["2", &place.to_string(), "2048"]);
        disk.refuses("the kernel rejects a longer partition");
    }
}

#[test]
fn grows_btrfs_on_one_device_only() {
    let Some(scratch) = disks("grows_btrfs_on_one_device_only") else { return };
    let point = scratch.0.join("point");
    let mut first = Disk::with(&scratch.0, "first", "btrfs", &point);
    let second = Disk::new(&scratch.0, "second", 512, GPT);
    let words = |verb: &str, disk: &Disk| {
        let device = disk.partition();
        let words = ["device".as_ref(), verb.as_ref(), device.as_os_str(), point.as_os_str()];
        let (code, said) = run("btrfs", &words, "");
        assert_eq!(code, Some(0), "{said}");
    };
    words("add", &second);
    second.resize(NEW);
    first.resize(NEW);
    first.refuses("has several devices");
    words("remove", &first);
    let (code, said) = second.grow(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(size(&point) > NEW * 8 / 10);
    let (code, _) = first.grow(&[]);
    assert_eq!(code, Some(1), "it is no longer mounted");
    ok("umount", &point);
    first.points.clear();
}

#[test]
fn does_not_shrink_a_file_system_larger_than_its_disk() {
    let Some(scratch) = disks("does_not_shrink_a_file_system_larger_than_its_disk") else { return };
    for kind in kinds() {
        let point = scratch.0.join(kind);
        let disk = Disk::new(&scratch.0, "disk", 512, "");
        let device = disk.device();
        let disk = disk.mounted(&device, kind, &point);
        disk.resize(NEW);
        let (code, said) = disk.grow(&[]);
        assert_eq!(code, Some(0), "{said}");
        let before = size(&point);
        assert!(before > NEW * 8 / 10, "{kind}");
        ok("mount -o remount,ro", &point);
        disk.resize(2 * NEW);
        let (code, said) = disk.grow(&[]);
        assert!(code == Some(1) && said.contains("mounted read-only"), "{said}");
        ok("mount -o remount,rw", &point);
        disk.resize(NEW - 16);
        let (code, said) = disk.grow(&[]);
        assert_eq!((code, said), (Some(0), format!("{}: nothing to do\n", disk.name)));
        assert_eq!(size(&point), before, "{kind}");
    }
}

#[test]
fn reports_what_cannot_grow() {
    let Some(scratch) = disks("reports_what_cannot_grow") else { return };
    for name in ["mote-none", "/dev/mote-none", "../block", ".", "/dev/"] {
        let (code, said) = grow(&[name]);
        assert!(code == Some(1) && said.contains("/sys/block has no disk"), "{said}");
    }
    let disk = Disk::new(&scratch.0, "disk", 512, "");
    let (code, said) = disk.grow(&[]);
    assert!(code == Some(1) && said.contains("no valid GPT or MBR"), "{said}");
    let (code, said) = grow(&[&*format!("{}p1", disk.name)]);
    assert!(code == Some(1) && said.contains("/sys/block has no disk"), "{said}");
    // Other programs may choose such a name.
    let odd = OsStr::from_bytes(b"\xff");
    assert_eq!(run(agent().to_str().unwrap(), &["grow".as_ref(), odd], "").0, Some(2));
}

#[test]
fn keeps_the_partition_of_an_unreachable_file_system() {
    let Some(scratch) = disks("keeps_the_partition_of_an_unreachable_file_system") else { return };
    let (point, file) = (scratch.0.join("point"), scratch.0.join("file"));
    fs::write(&file, "").unwrap();
    // Mounted over, mounted over its parent, mounted as a single file, mounted in another namespace
    // only, not mounted.
    let hidden = [
        "mount -t tmpfs none $0",
        "mount -t tmpfs none $(dirname $0)",
        "touch $0/f; mount --bind $0/f $1; umount $0",
        "umount $0",
    ];
    for (index, script) in hidden.iter().enumerate() {
        let directory = scratch.0.join(index.to_string());
        let point = directory.join("point");
        let disk = Disk::with(&scratch.0, "disk", "xfs", &point);
        disk.resize(NEW);
        let words = ["-c".as_ref(), (*script).as_ref(), point.as_os_str(), file.as_os_str()];
        assert_eq!(run("sh", &words, "").0, Some(0), "{script}");
        disk.refuses("");
        let words = ["-c", "umount -l $0 $(dirname $0) $1; true"].map(OsStr::new);
        run("sh", &[&words[..], &[point.as_os_str(), file.as_os_str()]].concat(), "");
    }
    // Only the read-only flag that root set protects this disk.
    let disk = Disk::with(&scratch.0, "disk", "xfs", &point);
    disk.resize(NEW);
    ok("blockdev --setro", &disk.device());
    disk.refuses("");
    // The kernel keeps the flag for the loop device's next file.
    ok("blockdev --setrw", &disk.device());
}

#[test]
fn concurrent_workers_grow_a_disk_once() {
    let Some(scratch) = disks("concurrent_workers_grow_a_disk_once") else { return };
    let point = scratch.0.join("point");
    let disk = Disk::with(&scratch.0, "disk", "xfs", &point);
    for length in [NEW, 2 * NEW] {
        disk.resize(length);
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| disk.grow(&[]))).collect();
            let all: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
            assert!(all.iter().any(|(code, _)| *code == Some(0)), "{all:?}");
        });
        ok("sfdisk --verify", &disk.device());
        assert_eq!(disk.length(), (length - 1) * MIB - 33 * 512);
        assert!(size(&point) > length * 8 / 10);
    }
}
