//! Writable file systems on this machine's disks, from `/proc/self/mountinfo` (proc(5)), in the
//! order of freezing: the last mounted first. Freezing a file system in an image file writes to the
//! file system that contains the file, which must therefore freeze later.

use alloc::vec;
use alloc::vec::Vec;

use crate::report::proc::mounts::Mounted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem<'l> {
    /// Mount point, escaped: the first one that no other mount covers.
    pub point: &'l [u8],
    /// Whether all of the file system's mounts are covered, so that no path leads there.
    pub is_covered: bool,
}

/// Returns the file systems to freeze, each once, in the reverse order of their first mounts. Takes
/// one pass, because a guest may have ten thousand mounts.
pub fn mounted(mountinfo: &[u8]) -> Vec<FileSystem<'_>> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    let mut known = Known::with_room_for(lines.clone().count());
    let mut all: Vec<Option<FileSystem<'_>>> = Vec::new();
    // Begin at the end, because later mounts may cover earlier ones.
    for mount in lines.rev().filter_map(Mounted::parse) {
        let Some((is_covered, place)) = known.place_of_path(mount.point) else { continue };
        *place = (mount.point, 0);
        if !counts(&mount) {
            continue;
        }
        let Some((device, at)) = known.place(mount.device, hash(HASH, mount.device)) else { break };
        let later = if device.is_empty() { None } else { all.get_mut(*at).and_then(Option::take) };
        (*device, *at) = (mount.device, all.len());
        let found = FileSystem { point: mount.point, is_covered };
        all.push(later.filter(|_| is_covered).or(Some(found)));
    }
    all.into_iter().flatten().collect()
}

/// A hash table of paths and devices. The value of a device is the position of its file system; an
/// empty key marks a free slot.
struct Known<'l>(Vec<(&'l [u8], usize)>);

/// Initial value of the hash (FNV-1a, 32 bits).
const HASH: u32 = 0x811c_9dc5;

fn hash(begun: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(begun, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

impl<'l> Known<'l> {
    /// Creates a table for the path and device of this many mounts, at least half empty.
    fn with_room_for(mounts: usize) -> Self {
        Self(vec![(&b""[..], 0); (mounts * 4).next_power_of_two()])
    }

    /// Returns the slot of a key with this hash, or the free slot for it.
    #[inline(never)] // its size
    fn place(&mut self, key: &[u8], hash: u32) -> Option<&mut (&'l [u8], usize)> {
        let mask = self.0.len() - 1;
        let mut at = hash as usize;
        loop {
            at &= mask;
            #[cfg(test)]
            tests::STEPS.set(tests::STEPS.get() + 1);
            let (there, _) = self.0.get(at)?;
            if there.is_empty() || *there == key {
                return self.0.get_mut(at);
            }
            at += 1;
        }
    }

    /// Returns the slot of a path, and whether the path or one of its directories is known.
    fn place_of_path(&mut self, path: &[u8]) -> Option<(bool, &mut (&'l [u8], usize))> {
        let (mut is_covered, mut so_far) = (false, HASH);
        for (at, byte) in path.iter().enumerate() {
            so_far = hash(so_far, &[*byte]);
            // Check the root, each directory on the way, and the whole path.
            if at == 0 || matches!(path.get(at + 1), None | Some(b'/')) {
                is_covered |= !self.place(path.get(..=at)?, so_far)?.0.is_empty();
            }
        }
        Some((is_covered, self.place(path, so_far)?))
    }
}

/// Returns whether the file system is on a disk and writable.
fn counts(mount: &Mounted<'_>) -> bool {
    // Some file systems, such as btrfs, have a device number of their own. FUSE may hang.
    let has_disk = !mount.device.starts_with(b"0:") || mount.source.starts_with(b"/dev/");
    // The file system's own option counts, because one of its mounts may be read-only.
    mount.common.starts_with(b"rw") && has_disk && !mount.kind.starts_with(b"fuse")
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;
    use crate::report::proc::mounts::unescape;

    std::thread_local! {
        /// Number of examined slots.
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

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
            format!("{cover}{}", String::from_utf8_lossy(&unescape(one.point).collect::<Vec<_>>()))
        };
        mounted(mountinfo.as_bytes()).iter().rev().map(one).collect()
    }

    #[test]
    fn lists_writable_disks_once_in_mount_order() {
        assert_eq!(shown(DEBIAN), ["/", "/boot/efi", "/srv/my data", "/mnt/loop", "/pool"]);
    }

    #[test]
    fn skips_a_mount_that_is_hidden_by_another() {
        let mount =
            |device: &str, point: &str| format!("1 2 {device} / {point} rw - ext4 /dev/x rw\n");
        let over = |lines: &[(&str, &str)]| {
            shown(&lines.iter().map(|(device, point)| mount(device, point)).collect::<String>())
        };
        assert_eq!(over(&[("8:1", "/"), ("8:2", "/a"), ("8:3", "/a")]), ["/", "!/a", "/a"]);
        assert_eq!(over(&[("8:1", "/"), ("8:2", "/a/b"), ("8:3", "/a")]), ["/", "!/a/b", "/a"]);
        // A file system has the position of its first mount.
        let twice = [("8:1", "/"), ("8:2", "/a"), ("8:3", "/a"), ("8:2", "/b")];
        assert_eq!(over(&twice), ["/", "/b", "/a"]);
        assert_eq!(over(&[("8:1", "/"), ("8:2", "/ab"), ("8:3", "/a")]), ["/", "/ab", "/a"]);
        // The root of an initramfs, then the real root.
        assert_eq!(over(&[("8:1", "/"), ("8:2", "/")]), ["!/", "/"]);
        assert_eq!(over(&[("8:1", "/a\\040b/c"), ("8:2", "/a\\040b")]), ["!/a b/c", "/a b"]);
    }

    #[test]
    fn the_cost_per_mount_does_not_grow() {
        type Line = fn(usize) -> String;
        let kinds: [(&str, Line); 3] = [
            ("disks", |n| format!("1 2 8:{n} / /a/{n} rw - ext4 /dev/x rw\n")),
            ("bind mounts", |n| format!("1 2 8:1 / /a/{n} rw - ext4 /dev/x rw\n")),
            ("one over the other", |n| format!("1 2 8:{n} / /a rw - ext4 /dev/x rw\n")),
        ];
        for (kind, line) in kinds {
            let steps_of_each = |count| {
                STEPS.set(0);
                let found = shown(&(0..count).map(line).collect::<String>());
                assert_eq!(found.len(), if kind == "bind mounts" { 1 } else { count });
                STEPS.get() / count
            };
            let (few, many) = (steps_of_each(100), steps_of_each(10_000));
            assert!(few > 0 && many <= few * 2, "{kind}: {few}, then {many}");
        }
    }

    #[test]
    fn a_truncated_line_names_no_other_mount() {
        let whole = "27 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw";
        assert_eq!(shown(whole), ["/"]);
        for cut in 0..whole.len() {
            assert_eq!(shown(&whole[..cut]), [""; 0], "{cut}");
        }
    }
}
