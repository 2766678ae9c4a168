//! The file systems of this machine's disks that can be written, in the order in which they were mounted
//! (`/proc/self/mountinfo`, proc(5)). They are frozen in the opposite order: one that lies on another one, as in a file of
//! its, has to write to that as it freezes.

use alloc::vec::Vec;

use crate::report::proc::mountinfo::{Mounted, is_over};

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem<'l> {
    /// Its device, as `major:minor`.
    device: &'l [u8],
    /// Where it is mounted, escaped. Of several mounts the first one that no other is in front of.
    pub point: &'l [u8],
    /// Whether another file system is mounted over each of its mounts: no path leads there.
    pub is_covered: bool,
}

/// Those that count, each once.
#[must_use]
pub fn mounted(mountinfo: &[u8]) -> Vec<FileSystem<'_>> {
    let mut all: Vec<FileSystem<'_>> = Vec::new();
    let mut lines = mountinfo.split(|byte| *byte == b'\n');
    while let Some(line) = lines.next() {
        let Some(mount) = Mounted::parse(line).filter(counts) else { continue };
        let Mounted { device, point, .. } = mount;
        let covers = |later| Mounted::parse(later).is_some_and(|later| is_over(later.point, point));
        let found = FileSystem { device, point, is_covered: lines.clone().any(covers) };
        match all.iter_mut().find(|known| known.device == device) {
            Some(known) if known.is_covered => *known = found,
            Some(_) => {}
            None => all.push(found),
        }
    }
    all
}

/// Whether it is of a disk, and can be written.
fn counts(mount: &Mounted<'_>) -> bool {
    // Some have a number that is no device's, such as btrfs. What a program serves may hang.
    let has_disk = !mount.device.starts_with(b"0:") || mount.source.starts_with(b"/dev/");
    // As the file system is: a mount of it may be read-only, and another one not.
    mount.common.starts_with(b"rw") && has_disk && !mount.kind.starts_with(b"fuse")
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use super::*;
    use crate::report::proc::mounts::unescape;

    const DEBIAN: &str = "\
22 27 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
23 27 0:21 / /proc rw,nosuid shared:12 - proc proc rw
24 27 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw,size=4k
26 27 0:23 / /run rw,nosuid shared:5 - tmpfs tmpfs rw,size=4k
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
40 27 254:15 / /boot/efi rw,relatime shared:30 - vfat /dev/vda15 rw,fmask=0022
41 27 254:32 / /srv/my\\040data rw - xfs /dev/vdc rw
42 27 7:0 / /mnt/loop rw - ext4 /dev/loop0 rw
43 27 254:1 /srv /bind ro - ext4 /dev/vda1 rw
44 27 0:50 /@ /pool rw - btrfs /dev/vdd rw,ssd
45 27 0:50 /@home /pool/home rw - btrfs /dev/vdd rw,ssd
46 27 7:1 / /snap/core ro - squashfs /dev/loop1 ro
47 27 254:48 / /read-only ro - ext4 /dev/vde ro
48 27 0:60 / /share rw - virtiofs config rw
49 27 8:1 / /windows rw - fuseblk /dev/sda1 rw
50 27 0:61 / /nfs rw - nfs4 10.0.0.1:/x rw";

    fn shown(mountinfo: &str) -> Vec<String> {
        let one = |one: &FileSystem<'_>| {
            let cover = if one.is_covered { "!" } else { "" };
            std::format!(
                "{cover}{}",
                String::from_utf8_lossy(&unescape(one.point).collect::<Vec<_>>())
            )
        };
        mounted(mountinfo.as_bytes()).iter().map(one).collect()
    }

    #[test]
    fn disks_that_can_be_written_count_once_in_the_order_of_their_first_mounts() {
        assert_eq!(shown(DEBIAN), ["/", "/boot/efi", "/srv/my data", "/mnt/loop", "/pool"]);
    }

    #[test]
    fn a_mount_that_another_is_in_front_of_is_not_taken_for_it() {
        let mount = |device: &str, point: &str| {
            std::format!("1 2 {device} / {point} rw - ext4 /dev/x rw\n")
        };
        let over = |lines: &[(&str, &str)]| {
            shown(&lines.iter().map(|(device, point)| mount(device, point)).collect::<String>())
        };
        assert_eq!(over(&[("8:1", "/"), ("8:2", "/a"), ("8:3", "/a")]), ["/", "!/a", "/a"]);
        assert_eq!(over(&[("8:1", "/"), ("8:2", "/a/b"), ("8:3", "/a")]), ["/", "!/a/b", "/a"]);
        // Its place is that of its first mount.
        let twice = [("8:1", "/"), ("8:2", "/a"), ("8:3", "/a"), ("8:2", "/b")];
        assert_eq!(over(&twice), ["/", "/b", "/a"]);
        assert_eq!(over(&[("8:1", "/"), ("8:2", "/ab"), ("8:3", "/a")]), ["/", "/ab", "/a"]);
        // The root of an initramfs, then the real one.
        assert_eq!(over(&[("8:1", "/"), ("8:2", "/")]), ["!/", "/"]);
        assert_eq!(over(&[("8:1", "/a\\040b/c"), ("8:2", "/a\\040b")]), ["!/a b/c", "/a b"]);
    }

    #[test]
    fn a_line_that_is_cut_anywhere_is_no_other_mount() {
        let whole = "27 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw";
        assert_eq!(shown(whole), ["/"]);
        for cut in 0..whole.len() {
            assert_eq!(shown(&whole[..cut]), [""; 0], "{cut}");
        }
    }
}
