//! File systems that grow while they are mounted, each by its own call.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use mote_core::report::proc::mountinfo::{Mounted, is_over};
use rustix::fs::{Mode, OFlags, fstatfs, open};

use crate::runtime::small_files::text_of;
use crate::sys::disk::control;
use crate::workers::report::lines::Lines;

/// `EXT4_IOC_RESIZE_FS`: blocks.
const EXT4_RESIZE: u32 = 0x4008_6610;
/// `XFS_IOC_FSGEOMETRY_V1`: the limit of inodes in percent at 28.
const XFS_GEOMETRY: u32 = 0x8070_5864;
/// `XFS_IOC_FSGROWFSDATA`: blocks, that limit.
const XFS_GROW: u32 = 0x4010_586e;
/// `BTRFS_IOC_RESIZE`: `NUMBER:max` at 8.
const BTRFS_RESIZE: u32 = 0x5000_9403;

/// One that is mounted.
pub(super) struct Filesystem {
    /// The first letter of its kind: ext4, xfs, btrfs.
    kind: u8,
    point: String,
    pub(super) is_writable: bool,
}

impl Filesystem {
    /// That of a device of sysfs; of its mounts that nothing is mounted over one that can be written, if there is one. Where a
    /// mount point has a space in its name it is not seen.
    #[inline(never)] // its size
    pub(super) fn on(root: &Path, device: &Path) -> Option<Self> {
        let number = text_of(device, "dev");
        let name = device.file_name()?.as_bytes();
        let mut lines = Lines::open(&root.join("proc/self/mountinfo"))?;
        let (mut kind, mut point, mut is_writable) = (0, Vec::new(), false);
        while let Some(line) = lines.next() {
            let Some(mounted) = Mounted::parse(line) else { continue };
            let is_there = match mounted.kind {
                b"ext4" | b"xfs" => mounted.device == number.trim_ascii_end().as_bytes(),
                // Its mounts have a number of their own. One of more devices is grown on the first one.
                b"btrfs" => mounted.source.strip_prefix(b"/dev/") == Some(name),
                _ => false,
            };
            // The lines are in the order of mounting.
            if is_over(mounted.point, &point) {
                (kind, is_writable) = (0, false);
            }
            if is_there && (mounted.is_writable || !is_writable) {
                point.clear();
                point.extend_from_slice(mounted.point);
                (kind, is_writable) = (*mounted.kind.first()?, mounted.is_writable);
            }
        }
        let point = String::from_utf8_lossy(&point).into_owned();
        (kind > 0).then_some(Self { kind, point, is_writable })
    }

    /// What a user does for it, on the device of this name.
    pub(super) fn advise(&self, name: &str, out: &mut String) {
        if !self.is_writable {
            out.push_str("mount it rw; ");
        }
        let (tool, what) = match self.kind {
            b'e' => ("resize2fs /dev/", name),
            b'x' => ("xfs_growfs ", &*self.point),
            _ => ("btrfs filesystem resize max ", &*self.point),
        };
        out.push_str(tool);
        out.push_str(what);
    }

    /// Has it fill so many bytes; whether it has become larger.
    pub(super) fn grow(&self, bytes: u64) -> rustix::io::Result<bool> {
        let file = open(&*self.point, OFlags::NONBLOCK, Mode::empty())?;
        let before = fstatfs(&file)?;
        let mut blocks = (bytes / u64::try_from(before.f_bsize).unwrap_or(0).max(1)).to_ne_bytes();
        match self.kind {
            b'e' => control(file.as_fd(), EXT4_RESIZE, &mut blocks)?,
            b'x' => {
                let (mut geometry, mut order) = ([0; 112], [0; 16]);
                control(file.as_fd(), XFS_GEOMETRY, &mut geometry)?;
                copy(&mut order, 0, &blocks);
                copy(&mut order, 8, geometry.get(28..32).unwrap_or_default());
                control(file.as_fd(), XFS_GROW, &mut order)?;
            }
            _ => {
                let mut page = [0; 4096];
                copy(&mut page, 8, b"1:max");
                control(file.as_fd(), BTRFS_RESIZE, &mut page)?;
            }
        }
        Ok(fstatfs(&file)?.f_blocks > before.f_blocks)
    }
}

fn copy(to: &mut [u8], at: usize, from: &[u8]) {
    to.iter_mut().skip(at).zip(from).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::scratch::scratch;

    #[test]
    fn one_that_another_is_mounted_over_is_not_reached_by_its_path() {
        let root = scratch("grow-covered");
        let device = root.join("sys/block/vdb");
        for directory in [&device, &root.join("a/b"), &root.join("c"), &root.join("proc/self")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(device.join("dev"), "254:16\n").unwrap();
        let top = root.display();
        let ours = |point: &str, how: &str| {
            format!("1 2 254:16 / {top}/{point} {how} - ext4 /dev/vdb rw\n")
        };
        let other = |point: &str| format!("1 2 254:32 / {top}/{point} rw - ext4 /dev/vdc rw\n");
        for (lines, expected) in [
            (vec![ours("a/b", "rw"), other("c")], Some(("a/b", true))),
            (vec![other("a"), ours("a/b", "rw")], Some(("a/b", true))),
            (vec![ours("a/b", "rw"), other("a/b")], None),
            (vec![ours("a/b", "rw"), other("a"), ours("c", "ro")], Some(("c", false))),
            (vec![ours("a/b", "rw"), ours("c", "rw"), other("a")], Some(("c", true))),
            (vec![ours("c", "ro"), ours("a/b", "rw")], Some(("a/b", true))),
            (vec![ours("a/b", "rw"), ours("c", "ro")], Some(("a/b", true))),
        ] {
            fs::write(root.join("proc/self/mountinfo"), lines.concat()).unwrap();
            let found = Filesystem::on(&root, &device);
            let found = found.as_ref().map(|found| {
                (found.point.strip_prefix(&format!("{top}/")).unwrap(), found.is_writable)
            });
            assert_eq!(found, expected, "{lines:?}");
        }
    }
}
