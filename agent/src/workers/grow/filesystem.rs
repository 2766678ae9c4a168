//! Grows mounted file systems, each type with its own ioctl.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use mote_core::report::proc::mounts::{Mounted, is_over, unescape};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, fstatfs, major, minor, openat2};
use rustix::io::{Errno, pread};

use crate::runtime::text_of;
use crate::sys::disk::control;
use crate::sys::file;
use crate::workers::report::lines::Lines;

/// `EXT4_IOC_RESIZE_FS`: blocks.
const EXT4_RESIZE: u32 = 0x4008_6610;
/// `XFS_IOC_FSGEOMETRY_V1`: block size at 0, limit of inodes in percent at 28, blocks at 32.
const XFS_GEOMETRY: u32 = 0x8070_5864;
/// `XFS_IOC_FSGROWFSDATA`: blocks, and the limit of inodes. Fewer blocks shrink the file system.
const XFS_GROW: u32 = 0x4010_586e;
/// `BTRFS_IOC_FS_INFO`: highest device number at 0, number of devices at 8.
const BTRFS_INFO: u32 = 0x8400_941f;
/// `BTRFS_IOC_DEV_INFO`: device number at 0, bytes at 32, path at 3072.
const BTRFS_DEVICE: u32 = 0xd000_941e;
/// `BTRFS_IOC_RESIZE`: `NUMBER:max` at 8.
const BTRFS_RESIZE: u32 = 0x5000_9403;
/// Offset of ext4's superblock. In it are the lower half of the number of blocks at 4, the upper
/// half at 336, and the shift of the block size at 24.
const EXT4_SUPER: u64 = 1024;

/// Maximum number of mounts tried per file system, and of device numbers tried per btrfs.
const MOST: u32 = 64;

/// `BTRFS_SUPER_MAGIC`.
const BTRFS: i128 = 0x9123_683e;

pub(super) struct Filesystem<'d> {
    /// First letter of its type: ext4, xfs or btrfs.
    kind: u8,
    /// Mount point as the kernel shows it.
    point: Vec<u8>,
    pub(super) is_writable: bool,
    /// Name and number, as `MAJOR:MINOR`, of the device.
    name: &'d str,
    number: String,
    /// The opened mount, which stays the same if the path changes.
    file: Option<OwnedFd>,
}

#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) bytes: u64,
    block: u64,
    /// Second argument of the ioctl: limit of inodes, or device number.
    detail: u32,
}

impl<'d> Filesystem<'d> {
    /// Finds the mounted file system of a device in sysfs, preferably through a writable mount.
    pub(super) fn on(root: &Path, device: &Path, name: &'d str) -> Option<Self> {
        let number = text_of(device, "dev").trim_ascii_end().to_owned();
        let mut lines = Lines::open(&root.join("proc/self/mountinfo"))?;
        let mut points: Vec<(Vec<u8>, bool)> = Vec::new();
        let mut kind = 0;
        while let Some(line) = lines.next() {
            let Some(mounted) = Mounted::parse(line) else { continue };
            // Lines are in order of mounting. A covering mount may hang.
            points.retain(|(point, _)| !is_over(mounted.point, point));
            let is_there = match mounted.kind {
                b"ext4" | b"xfs" => mounted.device == number.as_bytes(),
                // The device number of a btrfs is not its disk's.
                b"btrfs" => mounted.source.strip_prefix(b"/dev/") == Some(name.as_bytes()),
                _ => false,
            };
            if is_there && points.len() < MOST as usize {
                points.push((mounted.point.to_vec(), mounted.is_writable));
                kind = *mounted.kind.first()?;
            }
        }
        let best = points.iter().find(|(_, is_writable)| *is_writable).or(points.first())?;
        let (point, is_writable) = best.clone();
        let mut found = Self { kind, point, is_writable, name, number, file: None };
        // Other users may own a directory above, and the mount may be of a file.
        for wanted in [true, false] {
            for (point, is_writable) in &points {
                found.file = if *is_writable == wanted { enter(point) } else { None };
                if found.size().is_some() {
                    found.point.clone_from(point);
                    found.is_writable = wanted;
                    return Some(found);
                }
            }
        }
        Some(found)
    }

    pub(super) fn advise(&self, out: &mut String) {
        if !self.is_writable {
            out.push_str("mount it rw; ");
        }
        let point = String::from_utf8_lossy(&self.point);
        let (tool, what) = match self.kind {
            b'e' => ("resize2fs /dev/", self.name),
            b'x' => ("xfs_growfs ", &*point),
            _ => ("btrfs filesystem resize max ", &*point),
        };
        out.push_str(tool);
        out.push_str(what);
    }

    fn is_of_device(&self, file: &OwnedFd) -> bool {
        let number = fstat(file).map_or(0, |about| about.st_dev);
        self.number == format!("{}:{}", major(number), minor(number))
    }

    /// Returns the file system's size; `None` if it is not on the device.
    pub(super) fn size(&self) -> Option<Size> {
        let file = self.file.as_ref()?;
        if self.kind == b'b' {
            return self.btrfs_size(file);
        }
        if !self.is_of_device(file) {
            return None;
        }
        let (mut block, mut count, mut detail) = ([0; 4], [0; 8], [0; 4]);
        if self.kind == b'x' {
            let mut geometry = [0; 112];
            control(file.as_fd(), XFS_GEOMETRY, &mut geometry).ok()?;
            block = chunk(&geometry, 0)?;
            detail = chunk(&geometry, 28)?;
            count = chunk(&geometry, 32)?;
        }
        if self.kind == b'e' {
            let mut sector = [0; 1024];
            let device = file::open(format!("/dev/{}", self.name).as_ref(), OFlags::RDONLY);
            pread(device.ok()?, &mut sector, EXT4_SUPER).ok()?;
            let shift = u32::from_le_bytes(chunk(&sector, 24)?);
            block = 1024u32.checked_shl(shift)?.to_ne_bytes();
            let half = |at| chunk(&sector, at).map(u32::from_le_bytes).map(u64::from);
            count = (half(4)? | half(336)? << 32).to_ne_bytes();
        }
        let [block, detail] = [block, detail].map(u32::from_ne_bytes);
        let block = u64::from(block);
        let bytes = u64::from_ne_bytes(count).checked_mul(block)?;
        (block > 0).then_some(Size { bytes, block, detail })
    }

    /// Returns the size of a btrfs on one device. With several, the one to grow is unknown.
    fn btrfs_size(&self, file: &OwnedFd) -> Option<Size> {
        // Other file systems may use these ioctl numbers for something else.
        if i128::from(fstatfs(file).ok()?.f_type) != BTRFS {
            return None;
        }
        let mut info = [0; 1024];
        control(file.as_fd(), BTRFS_INFO, &mut info).ok()?;
        if u64::from_ne_bytes(chunk(&info, 8)?) != 1 {
            return None;
        }
        for detail in 1..=MOST {
            let mut device = [0; 4096];
            put(&mut device, 0, &u64::from(detail).to_ne_bytes());
            if control(file.as_fd(), BTRFS_DEVICE, &mut device).is_ok() {
                let path = device.get(3072..)?.split(|byte| *byte == 0).next()?;
                let is_it = path.strip_prefix(b"/dev/") == Some(self.name.as_bytes());
                let bytes = u64::from_ne_bytes(chunk(&device, 32)?);
                return is_it.then_some(Size { bytes, block: 1, detail });
            }
        }
        None
    }

    /// Grows the file system to this many bytes; returns whether it is larger now. Checks the size
    /// again, because a btrfs may have moved to another device.
    pub(super) fn grow(&self, bytes: u64) -> rustix::io::Result<bool> {
        let (Some(file), Some(size)) = (&self.file, self.size()) else { return Err(Errno::XDEV) };
        // XFS would shrink the file system.
        if bytes <= size.bytes {
            return Ok(false);
        }
        let mut blocks = (bytes / size.block).to_ne_bytes();
        match self.kind {
            b'e' => control(file.as_fd(), EXT4_RESIZE, &mut blocks)?,
            b'x' => {
                let mut order = [0; 16];
                put(&mut order, 0, &blocks);
                put(&mut order, 8, &size.detail.to_ne_bytes());
                control(file.as_fd(), XFS_GROW, &mut order)?;
            }
            _ => {
                let mut page = [0; 4096];
                put(&mut page, 8, format!("{}:max", size.detail).as_bytes());
                control(file.as_fd(), BTRFS_RESIZE, &mut page)?;
            }
        }
        Ok(self.size().is_some_and(|now| now.bytes > size.bytes))
    }
}

/// Opens a mount's directory through the kernel's path, which contains no symbolic links.
fn enter(point: &[u8]) -> Option<OwnedFd> {
    let path: Vec<u8> = unescape(point).collect();
    let how = OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat2(CWD, path, how, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn put(to: &mut [u8], at: usize, from: &[u8]) {
    to.iter_mut().skip(at).zip(from).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests;
