use std::fs;
use std::os::unix::fs::{chown, symlink};

use crate::runtime::{chmod, put, scratch};

use super::*;

#[test]
fn tries_sources_with_a_device_first() {
    use Source::{Iso, Plan9, Virtiofs};

    let root = scratch("sources");
    let order = || Source::in_order(&root).collect::<Vec<_>>();
    assert_eq!(order(), [Virtiofs, Plan9, Iso]);
    let device = |name: &str, id: &str| {
        put(&root, &format!("sys/bus/virtio/devices/{name}/device"), format!("{id}\n"));
    };
    // The VM has only a serial port.
    device("virtio0", "0x0003");
    assert_eq!(order(), [Iso, Virtiofs, Plan9]);
    device("virtio1", "0x0009");
    assert_eq!(order(), [Plan9, Iso, Virtiofs]);
    device("virtio2", "0x001a");
    assert_eq!(order(), [Virtiofs, Plan9, Iso]);
}

#[test]
fn waits_for_a_disk_on_a_scsi_bus() {
    let root = scratch("scsi");
    assert_eq!(disk(&root, SCAN), None);
    put(&root, "sys/bus/virtio/devices/virtio0/device", "0x0008\n");
    let late = root.to_path_buf();
    let scan = std::thread::spawn(move || {
        std::thread::sleep(5 * crate::runtime::LOOK_INTERVAL);
        put_disk(&late, "pci0000:00/host0/block/sr0", LABEL);
    });
    assert_eq!(disk(&root, SCAN), Some(root.join("dev/sr0")));
    scan.join().unwrap();
}

/// Neither way of mounting leaves a visible mount.
#[test]
fn reads_a_share_without_a_visible_mount() {
    const TEST: &str = "config::share::tests::reads_a_share_without_a_visible_mount";
    let true = mote_machine::in_private(mote_machine::Private::Mounts, TEST) else { return };
    let root = scratch("nowhere");
    let place = root.join(run_dir::SHARE);
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
    let (before, here) = (mounts(), std::env::current_dir().unwrap());
    fs::create_dir_all(&place).unwrap();
    mount("none", &place, "tmpfs", MountFlags::empty(), None).unwrap();
    for share in [
        mounted(c"tmpfs", c"none", false).unwrap(),
        mounted_before(place.clone(), c"tmpfs", c"none", false).unwrap(),
    ] {
        let share = Mounted::enter(share).unwrap();
        assert_eq!(mounts(), before);
        assert!(!place.exists());
        // The directory is empty and read-only.
        assert_eq!(fs::read_dir(".").unwrap().count(), 0);
        let why = fs::write("file", "").unwrap_err();
        assert_eq!(why.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        drop(share);
        assert_eq!(std::env::current_dir().unwrap(), here);
    }
    assert_eq!(mounts(), before);
}

/// Adds a disk with a label; `device` is relative to `/sys/devices`.
fn put_disk(root: &Path, device: &str, label: &str) {
    let device = root.join("sys/devices").join(device);
    let name = device.file_name().unwrap();
    for directory in [&device, &root.join("sys/block"), &root.join("dev")] {
        fs::create_dir_all(directory).unwrap();
    }
    symlink(&device, root.join("sys/block").join(name)).unwrap();
    let mut image = vec![0; 16 * 2048];
    image.extend(b"\x01CD001\x01\0");
    image.extend([b' '; 32]);
    image.extend(format!("{label:32}").bytes());
    image.extend([0; 100]);
    fs::write(root.join("dev").join(name), image).unwrap();
}

#[test]
fn reads_only_disks_of_the_machine_that_only_root_can_write() {
    let root = scratch("machine");
    for name in ["loop0", "nbd0", "dm-0", "md0", "zram0", "ram0", "sdx"] {
        put_disk(&root, &format!("virtual/block/{name}"), "incus-agent");
    }
    put_disk(&root, "rbd/0/block/rbd0", "incus-agent");
    // udev's link for a label is as untrusted as the disk itself.
    let by_label = root.join("dev/disk/by-label");
    fs::create_dir_all(&by_label).unwrap();
    symlink("../../loop0", by_label.join("incus-agent")).unwrap();
    let found = || find_disk(&root, "incus-agent");
    assert_eq!(found(), None);
    put_disk(&root, "pci0000:00/virtio2/block/vdb", "other");
    put_disk(&root, "pci0000:00/virtio1/block/vda", "incus-agent");
    assert_eq!(find_disk(&root, "incus"), None);
    let (node, devices) = (root.join("dev/vda"), root.join("dev"));
    assert_eq!(found(), Some(node.clone()));
    for (path, right, wrong) in [(&node, 0o660, 0o666), (&devices, 0o755, 0o777)] {
        chmod(path, wrong);
        assert_eq!(found(), None);
        chmod(path, right);
        if rustix::process::geteuid().is_root() {
            chown(path, Some(65_534), None).unwrap();
            assert_eq!(found(), None);
            chown(path, Some(0), None).unwrap();
        }
        assert_eq!(found(), Some(node.clone()));
    }
}
