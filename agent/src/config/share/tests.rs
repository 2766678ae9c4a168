use crate::runtime::{scratch, scratch::put};

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
    // Only a serial port.
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
        disk::tests::put(&late, "pci0000:00/host0/block/sr0", LABEL);
    });
    assert_eq!(disk(&root, SCAN), Some(root.join("dev/sr0")));
    scan.join().unwrap();
}

/// Both ways of mounting leave no visible mount.
#[test]
fn reads_a_share_without_a_visible_mount() {
    const TEST: &str = "config::share::tests::reads_a_share_without_a_visible_mount";
    if !mote_machine::in_private(mote_machine::Private::Mounts, TEST) {
        return;
    }
    let root = scratch("nowhere");
    let place = root.join(run_dir::SHARE);
    let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap();
    let (before, here) = (mounts(), std::env::current_dir().unwrap());
    std::fs::create_dir_all(&place).unwrap();
    mount("none", &place, "tmpfs", MountFlags::empty(), None).unwrap();
    for share in [
        mounted(c"tmpfs", c"none", false).unwrap(),
        mounted_before(place.clone(), c"tmpfs", c"none", false).unwrap(),
    ] {
        let share = Mounted::enter(share).unwrap();
        assert_eq!(mounts(), before);
        assert!(!place.exists());
        // Empty and read-only.
        assert_eq!(std::fs::read_dir(".").unwrap().count(), 0);
        let why = std::fs::write("file", "").unwrap_err();
        assert_eq!(why.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        drop(share);
        assert_eq!(std::env::current_dir().unwrap(), here);
    }
    assert_eq!(mounts(), before);
}
