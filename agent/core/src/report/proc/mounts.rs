//! Lines of `/proc/mounts` (fstab(5)) and `/proc/self/mountinfo` (proc(5)), and the choice of
//! mounts to report (P§4.6).

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
    /// Block size, in bytes.
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

/// A line of `/proc/self/mountinfo` (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mounted<'l> {
    /// Number of the mount, unique while it is mounted.
    pub id: &'l [u8],
    /// Number of the device, such as `8:2`.
    pub device: &'l [u8],
    /// Mount point, escaped.
    pub point: &'l [u8],
    pub kind: &'l [u8],
    /// Mounted device or source, such as `/dev/sda2`, escaped.
    pub source: &'l [u8],
    pub is_writable: bool,
    /// Options of the file system, common to all its mounts.
    pub common: &'l [u8],
}

impl<'l> Mounted<'l> {
    #[inline(never)] // its size
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let mut fields = [&b""[..]; 10];
        let mut free = fields.iter_mut();
        // A field may be empty, so single spaces separate them.
        for word in line.split(|byte| *byte == b' ') {
            // A dash ends the optional fields.
            if free.len() == 4 && word != b"-" {
                continue;
            }
            let Some(field) = free.next() else { break };
            *field = word;
        }
        let is_whole = free.len() == 0;
        let [id, _, device, _, point, options, _, kind, source, common] = fields;
        let is_writable = common.starts_with(b"rw") && options.starts_with(b"rw");
        is_whole.then_some(Self { id, device, point, kind, source, is_writable, common })
    }
}

/// Returns whether a path leads through a mount at this point; both are escaped.
#[inline(never)] // its size
pub fn is_over(point: &[u8], path: &[u8]) -> bool {
    let rest = path.strip_prefix(point);
    rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]) || point == b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_mounts_with_their_device() {
        let line =
            b"29 1 8:2 / /a\\040b rw,relatime shared:1 master:2 - ext4 /dev/sda2 rw,errors=remount-ro";
        let expected = Mounted {
            id: b"29",
            device: b"8:2",
            point: b"/a\\040b",
            kind: b"ext4",
            source: b"/dev/sda2",
            is_writable: true,
            common: b"rw,errors=remount-ro",
        };
        assert_eq!(Mounted::parse(line), Some(expected));
        for (line, is_writable) in [
            (&b"29 1 8:2 / / ro - xfs /dev/root rw"[..], Some(false)),
            (b"29 1 8:2 / / rw - xfs /dev/root ro,seclabel", Some(false)),
            (b"29 1 8:2 / / rw - tmpfs  rw more", Some(true)),
            (b"29 1 8:2 / / rw - xfs ", None),
            (b"29 1 8:2 / / rw xfs /dev/root rw", None),
            (b"", None),
        ] {
            let found = Mounted::parse(line).map(|mounted| mounted.is_writable);
            assert_eq!(found, is_writable, "{}", line.escape_ascii());
        }
    }
}
