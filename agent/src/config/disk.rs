//! Finds an ISO 9660 volume by its label without udev: Incus' `agent:config` disk (P§1.2).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::pread;

use crate::guest_path::{is_roots_alone, is_roots_but_for};
use crate::sys::file::{self, OFlags};
use crate::sys::run_in_fork;
use crate::system::devices::entries;

/// Offset of the primary volume descriptor, bytes (ECMA-119 §8.4).
const DESCRIPTOR: u64 = 16 * 2048;
/// Limit of examined disks; VMs have a few dozen.
const DEVICES: usize = 256;
/// Time limit for reading a label: a busy host is slow, and a broken disk never answers.
const LABEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Part of the sysfs path of a virtual disk.
const VIRTUAL: &[u8] = b"/virtual/";
/// Name prefixes of a machine's disks: virtio, SCSI (also ATA and USB) and its CD-ROMs, NVMe, IDE,
/// Xen.
const DRIVERS: [&str; 6] = ["vd", "sd", "sr", "nvme", "hd", "xvd"];

/// Returns the block device whose volume has this label. Reads only disks of the machine: a user
/// may control others (a loop device) or make them hang (nbd).
pub(crate) fn find(root: &Path, label: &str) -> Option<PathBuf> {
    let devices = root.join("dev");
    if !is_roots_alone(&devices) {
        return None;
    }
    for entry in entries(&root.join("sys/block")).into_iter().take(DEVICES) {
        let name = entry.file_name()?;
        let path = devices.join(name);
        if is_of_machine(&entry, name.as_encoded_bytes())
            // The group `disk` may write.
            && is_roots_but_for(&path, 0o002)
            && run_in_fork(LABEL_TIMEOUT, &|| has_label(&path, label))
        {
            return Some(path);
        }
    }
    None
}

/// Returns whether a disk is the machine's own, by its name and its sysfs path.
fn is_of_machine(entry: &Path, name: &[u8]) -> bool {
    let known = DRIVERS.iter().any(|driver| name.starts_with(driver.as_bytes()));
    let place = file::readlink(entry).unwrap_or_default().into_os_string().into_encoded_bytes();
    known && !place.is_empty() && !place.windows(VIRTUAL.len()).any(|part| part == VIRTUAL)
}

fn has_label(path: &Path, label: &str) -> bool {
    // O_NONBLOCK: opening an empty CD-ROM drive must not wait for a medium.
    let Ok(device) = file::open(path, OFlags::NONBLOCK) else { return false };
    let mut descriptor = [0; 72];
    if pread(&device, &mut descriptor, DESCRIPTOR) != Ok(descriptor.len()) {
        return false;
    }
    // Type 1, "CD001", version 1; the label is 32 bytes at offset 40, padded with spaces.
    let [kind, rest @ ..] = &descriptor;
    *kind == 1
        && rest.starts_with(b"CD001\x01")
        && descriptor.get(40..).is_some_and(|text| text.trim_ascii_end() == label.as_bytes())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// Adds a disk with a label; `device` is relative to `/sys/devices`.
    pub(crate) fn put(root: &Path, device: &str, label: &str) {
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
    fn finds_a_volume_by_its_label() {
        let root = crate::runtime::scratch("iso");
        put(&root, "pci0000:00/virtio1/block/vda", "other");
        put(&root, "pci0000:00/virtio2/block/vdb", "incus-agent");
        fs::create_dir_all(root.join("sys/block/sr0")).unwrap();
        assert_eq!(find(&root, "incus-agent"), Some(root.join("dev/vdb")));
        assert_eq!(find(&root, "incus"), None);
    }

    #[test]
    fn reads_only_disks_of_the_machine_that_only_root_can_write() {
        let root = crate::runtime::scratch("machine");
        for name in ["loop0", "nbd0", "dm-0", "md0", "zram0", "ram0", "sdx"] {
            put(&root, &format!("virtual/block/{name}"), "incus-agent");
        }
        put(&root, "rbd/0/block/rbd0", "incus-agent");
        // udev's link for a label is as untrusted as the disk itself.
        let by_label = root.join("dev/disk/by-label");
        fs::create_dir_all(&by_label).unwrap();
        symlink("../../loop0", by_label.join("incus-agent")).unwrap();
        let found = || find(&root, "incus-agent");
        assert_eq!(found(), None);
        put(&root, "pci0000:00/virtio1/block/vda", "incus-agent");
        let (node, devices) = (root.join("dev/vda"), root.join("dev"));
        assert_eq!(found(), Some(node.clone()));
        for (path, right, wrong) in [(&node, 0o660, 0o666), (&devices, 0o755, 0o777)] {
            fs::set_permissions(path, Permissions::from_mode(wrong)).unwrap();
            assert_eq!(found(), None);
            fs::set_permissions(path, Permissions::from_mode(right)).unwrap();
            if rustix::process::geteuid().is_root() {
                chown(path, Some(65_534), None).unwrap();
                assert_eq!(found(), None);
                chown(path, Some(0), None).unwrap();
            }
            assert_eq!(found(), Some(node.clone()));
        }
    }
}
