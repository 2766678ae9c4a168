//! Mounts the system's file systems, and unmounts all of them at the end.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use mote_core::report::proc::mounts::{Mount, unescape};
use rustix::mount::{MountFlags, UnmountFlags, mount_remount};

use crate::runtime::{make_directory, read_bounded};
use crate::sys::file;

const PLAIN: MountFlags = MountFlags::NOSUID;
const TIGHT: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const KERNEL: MountFlags = TIGHT.union(MountFlags::NOEXEC);

/// Mount point, type, flags and options, in the order of mounting.
const ALL: [(&str, &str, MountFlags, &CStr); 8] = [
    ("proc", "proc", KERNEL, c""),
    ("sys", "sysfs", KERNEL, c""),
    ("dev", "devtmpfs", PLAIN, c"mode=755"),
    ("dev/pts", "devpts", PLAIN, c"gid=5,mode=620,ptmxmode=666"),
    ("dev/shm", "tmpfs", TIGHT, c"mode=1777"),
    ("run", "tmpfs", TIGHT, c"mode=755"),
    ("tmp", "tmpfs", TIGHT, c"mode=1777"),
    ("sys/fs/cgroup", "cgroup2", KERNEL, c""),
];
/// Links in `/dev` that udev would create.
const LINKS: [(&str, &str); 4] =
    [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")];
/// File systems without a disk, which stay mounted.
const IN_MEMORY: [&[u8]; 8] =
    [b"cgroup2", b"devpts", b"devtmpfs", b"proc", b"ramfs", b"rootfs", b"sysfs", b"tmpfs"];

/// Mounts what is missing, and creates root's home, where commands start. Returns the errors.
pub(crate) fn mount(root: &Path) -> Vec<String> {
    let mut troubles = Vec::new();
    for (place, kind, flags, data) in ALL {
        let path = root.join(place);
        let _there_or_read_only = make_directory(&path);
        let device = |path: &Path| file::stat(path).map(|about| about.st_dev).ok();
        let own = device(&path);
        if own.is_some() && own != path.parent().and_then(device) {
            // Already mounted.
            continue;
        }
        if let Err(error) = rustix::mount::mount(kind, &path, kind, flags, data) {
            troubles.push(format!("cannot mount {}: {error}", path.display()));
        }
    }
    for (name, target) in LINKS {
        let target = Path::new("/proc/self").join(target);
        let _there = file::symlink(&target, &root.join("dev").join(name));
    }
    let _there = file::mkdir(&root.join("root"));
    troubles
}

/// Unmounts all file systems in reverse order; remounts busy ones read-only. Returns false if one
/// failed.
pub(crate) fn unmount(root: &Path) -> bool {
    let Ok(list) = read_bounded(&root.join("proc/mounts"), u64::MAX) else { return false };
    let mounts = list.split(|byte| *byte == b'\n').rev().filter_map(Mount::parse);
    let mut is_done = true;
    for mount in mounts.filter(|mount| !IN_MEMORY.contains(&mount.kind)) {
        let point = PathBuf::from(OsString::from_vec(unescape(mount.point).collect()));
        if rustix::mount::unmount(&point, UnmountFlags::NOFOLLOW).is_err() {
            is_done &= mount_remount(&point, MountFlags::RDONLY, c"").is_ok();
        }
    }
    is_done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_missing_mount_point() {
        let root = crate::runtime::scratch("no-mount-points");
        std::fs::write(root.join("file"), "").unwrap();
        assert_eq!(mount(&root.join("file")).len(), ALL.len());
    }

    #[test]
    fn unmounts_however_many_mounts_there_are() {
        let root = crate::runtime::scratch("unmount-many");
        assert!(!unmount(&root), "without a list");
        std::fs::create_dir(root.join("proc")).unwrap();
        let list = "tmpfs /nowhere tmpfs rw 0 0\n".repeat(100_000);
        std::fs::write(root.join("proc/mounts"), &list).unwrap();
        assert!(unmount(&root));
        // This mount is tried first.
        let list = list + "/dev/none /nowhere/mote ext4 rw 0 0\n";
        std::fs::write(root.join("proc/mounts"), list).unwrap();
        assert!(!unmount(&root));
    }
}
