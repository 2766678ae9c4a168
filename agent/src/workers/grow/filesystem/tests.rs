use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{FileType, mknodat};

use super::*;
use crate::runtime::scratch;

#[test]
fn rejects_a_file_system_that_is_mounted_over() {
    let root = scratch("grow-covered");
    let device = root.join("sys/block/vdb");
    for directory in [&device, &root.join("a/b"), &root.join("c"), &root.join("proc/self")] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(device.join("dev"), "254:16\n").unwrap();
    let top = root.display();
    let ours =
        |point: &str, how: &str| format!("1 2 254:16 / {top}/{point} {how} - ext4 /dev/vdb rw\n");
    let other = |point: &str| format!("1 2 254:32 / {top}/{point} rw - ext4 /dev/vdc rw\n");
    for (lines, expected) in [
        (vec![ours("a/b", "rw"), other("c")], Some(("a/b", true))),
        (vec![other("a"), ours("a/b", "rw")], Some(("a/b", true))),
        (vec![ours("a/b", "rw"), other("a/b")], None),
        (vec![ours("a/b", "rw"), other("a"), ours("c", "ro")], Some(("c", false))),
        (vec![ours("a/b", "rw"), ours("c", "rw"), other("a")], Some(("c", true))),
        (vec![ours("c", "ro"), ours("a/b", "rw")], Some(("a/b", true))),
        (vec![ours("a/b", "rw"), ours("c", "ro")], Some(("a/b", true))),
    ] {
        fs::write(root.join("proc/self/mountinfo"), lines.concat()).unwrap();
        let found = Filesystem::on(&root, &device, "vdb");
        let found = found.as_ref().map(|found| {
            let point = std::str::from_utf8(&found.point).unwrap();
            (point.strip_prefix(&format!("{top}/")).unwrap(), found.is_writable)
        });
        assert_eq!(found, expected, "{lines:?}");
    }
}

#[test]
fn opens_a_mount_point_without_following_links() {
    let root = scratch("grow-names");
    let opens = |point: &str| enter(root.join(point).as_os_str().as_encoded_bytes()).is_some();
    fs::create_dir_all(root.join("real/disk")).unwrap();
    symlink("real", root.join("link")).unwrap();
    symlink("real/disk", root.join("last")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(opens("real/disk"));
    for point in ["link/disk", "last", "last/.", "file", "fifo", "none"] {
        assert!(!opens(point), "{point}");
    }
}

#[test]
fn does_not_grow_another_devices_file_system() {
    let root = scratch("grow-device");
    let number = rustix::fs::stat(&*root).unwrap().st_dev;
    let (major, minor) = (major(number), minor(number));
    // Stands for the device: the superblock of an ext4 with blocks of 4 KiB.
    let mut disk = vec![0; 2048];
    put(&mut disk, 1024 + 4, &8u32.to_le_bytes());
    put(&mut disk, 1024 + 24, &2u32.to_le_bytes());
    fs::write(root.join("disk"), disk).unwrap();
    let name = format!("..{}/disk", root.display());
    let found = |kind, number: String, path: &str| Filesystem {
        kind,
        point: path.as_bytes().to_vec(),
        is_writable: true,
        name: &name,
        number,
        file: enter(path.as_bytes()),
    };
    let path = root.to_str().unwrap();
    for (number, path, expected) in [
        (format!("{major}:{minor}"), path, true),
        (format!("{major}:{}", minor + 1), path, false),
        (format!("{major}:{minor}0"), path, false),
        (String::new(), path, false),
        (format!("{major}:{minor}"), "/proc", false),
    ] {
        for kind in *b"exb" {
            let found = found(kind, number.clone(), path);
            let is_read = expected && kind == b'e';
            assert_eq!(found.size().map(|size| size.bytes), is_read.then_some(8 << 12), "{number}");
            assert!(expected || found.grow(u64::MAX).is_err());
        }
    }
    // No mount was opened.
    assert!(found(b'x', format!("{major}:{minor}"), "/none").grow(1).is_err());
}
