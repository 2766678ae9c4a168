//! `/proc/mounts` (fstab(5)), and which mounts are worth measuring (P§4.6).

use crate::flavour::Flavour;

/// File systems that hold nothing, or somebody else's.
const SKIPPED: [&str; 24] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "fusectl",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "procfs",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tracefs",
];

/// A mount, as it stands in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'l> {
    /// What is mounted, escaped.
    pub device: &'l [u8],
    /// Where, escaped.
    pub point: &'l [u8],
    /// The kind of file system.
    pub kind: &'l [u8],
}

impl<'l> Mount<'l> {
    /// Reads a line. An empty device name is nothing but its space.
    #[must_use]
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
        // A line that was cut ends in its third word or before.
        (!point.is_empty() && words.next().is_some()).then_some(Self { device, point, kind })
    }

    /// Whether to measure it, `point` being where it is, unescaped.
    #[must_use]
    pub fn counts(&self, flavour: Flavour, point: &[u8]) -> bool {
        let lxcfs = match flavour {
            Flavour::Lxd | Flavour::LxdOld => self.kind == b"fuse.lxcfs",
            Flavour::Incus => false,
        };
        let system = [&b"/dev"[..], b"/proc", b"/sys"]
            .into_iter()
            .any(|top| point.strip_prefix(top).is_some_and(|rest| matches!(rest, [] | [b'/', ..])));
        let docker = point.strip_prefix(b"/var/lib/docker/").is_some_and(|rest| !rest.is_empty());
        let skipped = SKIPPED.iter().any(|kind| kind.as_bytes() == self.kind);
        !(lxcfs || system || docker || skipped)
    }
}

/// Undoes the kernel's `\040` for a space, tab, newline, backslash or hash; the rest stays. (The
/// originals do not, and lose all file systems when one has such a name.)
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

/// What statfs(2) said of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block: u64,
    /// All blocks.
    pub blocks: u64,
    /// Those that are free.
    pub free: u64,
    /// Those that are free for everybody.
    pub available: u64,
    /// The file system's magic number.
    pub magic: u32,
}

/// The names the servers' metrics have for these magic numbers (statfs(2)); others are written in hex.
#[must_use]
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
