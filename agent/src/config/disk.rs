//! Finds an ISO 9660 volume by its label without udev: Incus' `agent:config` disk (P§1.2).

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::start::devices::entries;

/// Offset of the primary volume descriptor, bytes (ECMA-119 §8.4).
const DESCRIPTOR: u64 = 16 * 2048;
/// Most block devices examined.
const DEVICES: usize = 256;

/// The block device whose volume has this label, if there is one.
pub(crate) fn find(root: &Path, label: &str) -> Option<PathBuf> {
    let by_label = root.join("dev/disk/by-label").join(label);
    if by_label.exists() {
        return Some(by_label);
    }
    for entry in entries(&root.join("sys/class/block")).into_iter().take(DEVICES) {
        let path = root.join("dev").join(entry.file_name()?);
        if has_label(&path, label) {
            return Some(path);
        }
    }
    None
}

fn has_label(path: &Path, label: &str) -> bool {
    // O_NONBLOCK: opening an empty CD-ROM drive must not wait for a medium.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let Ok(device) = File::options().read(true).custom_flags(flags).open(path) else {
        return false;
    };
    let mut descriptor = [0; 72];
    if device.read_exact_at(&mut descriptor, DESCRIPTOR).is_err() {
        return false;
    }
    // Type 1, "CD001", version 1; the label is 32 bytes at offset 40, padded with spaces.
    let [kind, rest @ ..] = &descriptor;
    *kind == 1
        && rest.starts_with(b"CD001\x01")
        && descriptor.get(40..).is_some_and(|text| text.trim_ascii_end() == label.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_found_by_its_label_alone() {
        let root = crate::runtime::scratch::scratch("iso");
        std::fs::create_dir_all(root.join("dev")).unwrap();
        for (name, label) in [("vda", "other"), ("vdb", "incus-agent")] {
            std::fs::create_dir_all(root.join("sys/class/block").join(name)).unwrap();
            let mut image = vec![0; 16 * 2048];
            image.extend(b"\x01CD001\x01\0");
            image.extend([b' '; 32]);
            image.extend(format!("{label:32}").bytes());
            image.extend([0; 100]);
            std::fs::write(root.join("dev").join(name), image).unwrap();
        }
        std::fs::create_dir_all(root.join("sys/class/block/sr0")).unwrap();
        assert_eq!(find(&root, "incus-agent"), Some(root.join("dev/vdb")));
        assert_eq!(find(&root, "incus"), None);
    }
}
