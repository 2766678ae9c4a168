//! `mote-agent grow` on disks that are files, and its failures.
#![allow(clippy::unwrap_used)] // in helpers too: all of this is a test

mod disk;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disk::{Disk, GPT, MIB, NEW, OLD, grow, has_disks, kinds, ok, run, size, victim};
use mote_tests::{Scratch, agent};

#[test]
fn grows_each_file_system_at_any_mount_point_name() {
    if !has_disks("grows_each_file_system_at_any_mount_point_name") {
        return;
    }
    let scratch = Scratch::new();
    let (_victim, outside, before) = victim(&scratch);
    let names = [
        ("My Disk", r"My\040Disk"),
        ("a\tb", r"a\011b"),
        ("new\nline", r"new\012line"),
        (r"back\slash", r"back\134slash"),
        (r"My\040Disk 2", r"My\134040Disk\0402"),
        ("\u{e4}!", "\u{e4}!/decoy"),
    ];
    let kinds = kinds();
    for ((name, escaped), kind) in
        names.iter().flat_map(|name| kinds.iter().map(move |kind| (name, kind)))
    {
        let point = outside.join(name);
        fs::create_dir_all(outside.join(escaped)).unwrap();
        let disk = Disk::new(&scratch.0, "disk", 512, GPT);
        let partition = disk.partition();
        let disk = disk.mounted(&partition, kind, &point);
        disk.resize(NEW);
        let table = disk.table();
        let (code, said) = disk.grow(&["--dry-run"]);
        let expected =
            format!("{}p1 and its file system would grow to {} MiB\n", disk.name, NEW - 2);
        assert_eq!((code, said.as_str()), (Some(0), &*expected));
        assert!(disk.table() == table && disk.length() < OLD * MIB);
        let (code, said) = grow(&[&*format!("/dev/{}", disk.name)]);
        assert_eq!((code, said), (Some(0), expected.replace("would grow", "grew")));
        assert!(size(&point) > NEW * 8 / 10, "{kind} {name}: {}", size(&point));
        assert_eq!(size(&outside), before, "{kind} {name}");
        ok("sfdisk --verify", &disk.device());
        let (code, said) = disk.grow(&[]);
        assert_eq!((code, said), (Some(0), format!("{}: nothing to do\n", disk.name)));
    }
}

/// Repeatedly swaps a directory for others, as its owner can.
fn swap(outside: &Path, by_link: bool, is_over: &AtomicBool) {
    let place = |name| outside.join(name);
    // About the time that reading the list of mounts takes.
    let sleep = || std::thread::sleep(Duration::from_micros(100));
    while !is_over.load(Ordering::Relaxed) {
        fs::rename(place("u"), place("away")).unwrap();
        if by_link {
            symlink("other", place("link")).unwrap();
            fs::rename(place("link"), place("u")).unwrap();
            sleep();
            fs::remove_file(place("u")).unwrap();
        } else {
            fs::rename(place("other"), place("u")).unwrap();
            sleep();
            fs::rename(place("u"), place("other")).unwrap();
        }
        fs::rename(place("away"), place("u")).unwrap();
        sleep();
    }
}

#[test]
fn a_swapped_parent_directory_redirects_nothing() {
    if !has_disks("a_swapped_parent_directory_redirects_nothing") {
        return;
    }
    let scratch = Scratch::new();
    let (_victim, outside, before) = victim(&scratch);
    let mut disks = Vec::new();
    for kind in kinds() {
        fs::create_dir_all(outside.join("other").join(kind)).unwrap();
        let disk = Disk::new(&scratch.0, kind, 512, GPT);
        let partition = disk.partition();
        let point = outside.join("u").join(kind);
        disks.push((disk.mounted(&partition, kind, &point), point));
    }
    // More mounts, so that time passes between the line of these mounts and the end of the list.
    let many = scratch.0.join("many");
    let script = "mkdir $0; mount -t tmpfs none $0; cd $0; for i in $(seq 300); do mkdir $i; mount --bind $i $i; done";
    let words = ["-c".as_ref(), script.as_ref(), many.as_os_str()];
    assert_eq!(run("sh", &words, "").0, Some(0));
    let (mut grown, mut refused) = (0, 0);
    for round in 1..=12 {
        let length = OLD + round * 40;
        for (disk, point) in &disks {
            disk.resize(length);
            let (table, partition, old) = (disk.table(), disk.length(), size(point));
            let is_over = AtomicBool::new(false);
            let (code, said) = std::thread::scope(|scope| {
                scope.spawn(|| swap(&outside, round % 2 == 0, &is_over));
                let done = disk.grow(&[]);
                is_over.store(true, Ordering::Relaxed);
                done
            });
            assert_eq!(size(&outside), before, "{said}");
            if code == Some(0) {
                grown += 1;
                assert!(size(point) > old, "{said}");
            } else {
                refused += 1;
                assert!(said.contains("not found at its mount point"), "{said}");
                assert!(disk.table() == table && disk.length() == partition, "{said}");
            }
        }
    }
    println!("{grown} were grown, {refused} were left as they are");
}

#[test]
fn keeps_reserved_space_after_the_last_usable_block() {
    if !has_disks("keeps_reserved_space_after_the_last_usable_block") {
        return;
    }
    let scratch = Scratch::new();
    for (sector, reserved) in [(512, MIB), (4096, 4 * MIB), (512, 64 * 512)] {
        let own = 16 * 1024 + sector;
        let usable = OLD * MIB - own - reserved;
        let last = usable / sector - 1;
        let start = MIB / sector;
        let script = format!("label: gpt\nlast-lba: {last}\nstart={start}, type=linux\n");
        let disk = Disk::new(&scratch.0, "disk", sector, &script);
        let partition = disk.partition();
        let point = scratch.0.join("point");
        let disk = disk.mounted(&partition, "ext4", &point);
        let file = OpenOptions::new().write(true).read(true).open(&disk.file).unwrap();
        let data = vec![0xa5; usize::try_from(reserved).unwrap()];
        file.write_all_at(&data, usable).unwrap();
        ok("blockdev --flushbufs", &disk.device());
        disk.resize(NEW);
        let (table, length) = (disk.table(), disk.length());
        let (code, said) = disk.grow(&[]);
        assert!(code == Some(1) && said.contains("reserves the space"), "{said}");
        assert!(disk.table() == table && disk.length() == length);
        let mut now = vec![0; data.len()];
        file.read_exact_at(&mut now, usable).unwrap();
        assert!(now == data, "{sector} {reserved}");
    }
}

#[test]
fn restores_the_table_if_kernel_or_disk_fails() {
    if !has_disks("restores_the_table_if_kernel_or_disk_fails") {
        return;
    }
    let scratch = Scratch::new();
    let point = scratch.0.join("point");
    for script in [GPT, "label: dos\nstart=2048, type=83\n"] {
        // The kernel knows another partition behind it, which the table lacks.
        let disk = Disk::new(&scratch.0, "disk", 512, script);
        let partition = disk.partition();
        let disk = disk.mounted(&partition, "ext4", &point);
        disk.resize(NEW);
        let place = (OLD + 20) * MIB / 512;
        disk.tell(&["2", &place.to_string(), "2048"]);
        let (table, length) = (disk.table(), disk.length());
        let (code, said) = disk.grow(&[]);
        assert!(
            code == Some(1) && said.contains("the kernel rejects a longer partition"),
            "{said}"
        );
        assert!(disk.table() == table && disk.length() == length);
    }
}

#[test]
fn grows_btrfs_on_one_device_only() {
    if !has_disks("grows_btrfs_on_one_device_only") {
        return;
    }
    let scratch = Scratch::new();
    let point = scratch.0.join("point");
    let first = Disk::new(&scratch.0, "first", 512, GPT);
    let partition = first.partition();
    let mut first = first.mounted(&partition, "btrfs", &point);
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
    let table = first.table();
    let (code, said) = first.grow(&[]);
    assert!(code == Some(1) && said.contains("has several devices"), "{said}");
    assert!(first.table() == table);
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
    if !has_disks("does_not_shrink_a_file_system_larger_than_its_disk") {
        return;
    }
    let scratch = Scratch::new();
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
    if !has_disks("reports_what_cannot_grow") {
        return;
    }
    let scratch = Scratch::new();
    for name in ["mote-none", "/dev/mote-none", "../block", ".", "/dev/"] {
        let (code, said) = grow(&[name]);
        assert!(code == Some(1) && said.contains("/sys/block has no disk"), "{said}");
    }
    let disk = Disk::new(&scratch.0, "disk", 512, "");
    let (code, said) = disk.grow(&[]);
    assert!(code == Some(1) && said.contains("no valid GPT or MBR"), "{said}");
    let (code, said) = grow(&[&*format!("{}p1", disk.name)]);
    assert!(code == Some(1) && said.contains("/sys/block has no disk"), "{said}");
}

#[test]
fn keeps_the_partition_of_a_read_only_disk() {
    if !has_disks("keeps_the_partition_of_a_read_only_disk") {
        return;
    }
    let scratch = Scratch::new();
    // The disk's file has no space for the backup table at the new end.
    let full = scratch.0.join("full");
    fs::create_dir(&full).unwrap();
    let words = ["-t", "tmpfs", "-o", "size=200m", "none"].map(OsStr::new);
    assert_eq!(run("mount", &[&words[..], &[full.as_os_str()]].concat(), "").0, Some(0));
    let point = scratch.0.join("point");
    {
        let disk = Disk::new(&full, "disk", 512, GPT);
        let partition = disk.partition();
        let disk = disk.mounted(&partition, "xfs", &point);
        ok("sync -f", &point);
        disk.resize(NEW);
        let mut rest = File::create(full.join("rest")).unwrap();
        while rest.write_all(&[1; 4096]).is_ok() {}
        drop(rest);
        let length = disk.length();
        let before = size(&point);
        let (code, said) = disk.grow(&[]);
        assert!(code == Some(1) && said.contains("I/O errors"), "{said}");
        assert_eq!((disk.length(), size(&point)), (length, before));
        fs::remove_file(full.join("rest")).unwrap();
        ok("sfdisk --verify", &disk.device());
        let (code, said) = disk.grow(&[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(size(&point) > NEW * 8 / 10);
    }
    // Other programs may choose such a name.
    let odd = OsStr::from_bytes(b"\xff");
    assert_eq!(run(agent().to_str().unwrap(), &["grow".as_ref(), odd], "").0, Some(2));
}

#[test]
fn keeps_the_partition_of_an_unreachable_file_system() {
    if !has_disks("keeps_the_partition_of_an_unreachable_file_system") {
        return;
    }
    let scratch = Scratch::new();
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
        let disk = Disk::new(&scratch.0, "disk", 512, GPT);
        let partition = disk.partition();
        let disk = disk.mounted(&partition, "xfs", &point);
        disk.resize(NEW);
        let words = ["-c".as_ref(), (*script).as_ref(), point.as_os_str(), file.as_os_str()];
        assert_eq!(run("sh", &words, "").0, Some(0), "{script}");
        let (table, length) = (disk.table(), disk.length());
        let (code, said) = disk.grow(&[]);
        assert_eq!(code, Some(1), "{script}: {said}");
        assert!(disk.table() == table && disk.length() == length, "{script}");
        let words = ["-c", "umount -l $0 $(dirname $0) $1; true"].map(OsStr::new);
        run("sh", &[&words[..], &[point.as_os_str(), file.as_os_str()]].concat(), "");
    }
    // Only the read-only flag that root set protects this disk.
    let disk = Disk::new(&scratch.0, "disk", 512, GPT);
    let partition = disk.partition();
    let disk = disk.mounted(&partition, "xfs", &point);
    disk.resize(NEW);
    ok("blockdev --setro", &disk.device());
    let (table, length) = (disk.table(), disk.length());
    let (code, said) = disk.grow(&[]);
    // The kernel keeps the flag for the loop device's next file.
    ok("blockdev --setrw", &disk.device());
    assert_eq!(code, Some(1), "{said}");
    assert!(disk.table() == table && disk.length() == length);
}

#[test]
fn concurrent_workers_grow_a_disk_once() {
    if !has_disks("concurrent_workers_grow_a_disk_once") {
        return;
    }
    let scratch = Scratch::new();
    let point = scratch.0.join("point");
    let disk = Disk::new(&scratch.0, "disk", 512, GPT);
    let partition = disk.partition();
    let disk = disk.mounted(&partition, "xfs", &point);
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
