//! `/proc/mounts` (fstab(5)), and the choice of mounts to report (P§4.6).

use super::mountinfo::is_over;
use crate::flavour::Flavour;

/// File systems without data.
const SKIPPED: &str = "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs fusectl \
    hugetlbfs iso9660 mqueue nsfs overlay proc procfs pstore rpc_pipefs securityfs selinuxfs \
    squashfs sysfs tracefs";

/// File systems on this machine's memory or disks, where neither a path nor statfs(2) can hang.
const LOCAL: &str = "btrfs erofs exfat ext2 ext3 ext4 f2fs ramfs rootfs tmpfs vfat xfs";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'l> {
    /// Mounted device, escaped.
    pub device: &'l [u8],
    /// Mount point, escaped.
    pub point: &'l [u8],
    pub kind: &'l [u8],
}

impl<'l> Mount<'l> {
    /// Parses a line. The device name may be empty, so single spaces separate the fields.
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
        // Without a fourth field, the third may be truncated.
        (!point.is_empty() && words.next().is_some()).then_some(Self { device, point, kind })
    }

    /// Returns whether a call on a path through this mount may hang: a server or a program provides
    /// it, or its type is unknown. systemd's automounts in `/proc` do not hang.
    pub fn may_hang(&self) -> bool {
        match self.kind {
            b"autofs" => !self.point.starts_with(b"/proc/"),
            b"overlay" => true,
            _ => !self.is_of(LOCAL) && !self.is_of(SKIPPED),
        }
    }

    fn is_of(&self, kinds: &str) -> bool {
        kinds.split(' ').any(|kind| kind.as_bytes() == self.kind)
    }

    /// Returns whether the mount is reported; `point` is its mount point, unescaped.
    pub fn counts(&self, flavour: Flavour, point: &[u8]) -> bool {
        let lxcfs = match flavour {
            Flavour::Lxd | Flavour::LxdOld => self.kind == b"fuse.lxcfs",
            Flavour::Incus => false,
        };
        let is_below = |top: &[u8]| is_over(top, point);
        let system = is_below(b"/dev") || is_below(b"/proc") || is_below(b"/sys");
        let docker = point.strip_prefix(b"/var/lib/docker/").is_some_and(|rest| !rest.is_empty());
        !(lxcfs || system || docker || self.is_of(SKIPPED))
    }
}

/// Decodes the kernel's octal escapes (`\040` for a space). The Go agents do not, and report no
/// file system at all if one has such a name.
pub fn unescape(raw: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = raw;
    core::iter::from_fn(move || {
        let (byte, after) = rest.split_first()?;
        let escaped = match (byte, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                Some(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*byte, after));
        rest = after;
        Some(byte)
    })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Block size, bytes.
    pub block: u64,
    pub blocks: u64,
    pub free: u64,
    /// Number of free blocks that unprivileged users may take.
    pub available: u64,
    /// Magic number of the file system.
    pub magic: u32,
}

/// Returns the servers' name for a magic number (statfs(2)); others appear in hex.
pub fn kind(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x6969 => "nfs",
        0x2fc1_2fc1 => "zfs",
        _ => return None,
    })
}
