//! Mounts the shares and the disk with the host's files (P§1.2). Each is unmounted after reading,
//! because a mounted share prevents live migration. Since Linux 5.2 the mount is detached: it needs
//! no directory, has no path, and ends with its descriptor.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::{Errno, pread};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, unmount,
};
use rustix::process::fchdir;

use crate::guest_path::{is_roots_alone, is_roots_but_for};
use crate::options::Options;
use crate::runtime::{look_for, make_directory, run_dir};
use crate::sys::{file, run_in_fork};
use crate::system::devices::{self, BLOCK, Device, FS, Kind, PLAN9, SCSI, entries};
use crate::system::modules;

/// Mount tag of the virtiofs and 9p shares (P§1.2).
const TAG: &CStr = c"config";
/// Label of Incus' config disk (P§1.2).
const LABEL: &str = "incus-agent";
/// Time limit for the kernel's scan of the SCSI bus.
const SCAN: Duration = Duration::from_secs(2);
/// Offset of the primary volume descriptor, in bytes (ECMA-119 §8.4).
const DESCRIPTOR: u64 = 16 * 2048;
/// Maximum number of examined disks; VMs have a few dozen.
const DEVICES: usize = 256;
/// Time limit for reading a label: a busy host is slow, and a broken disk never answers.
const LABEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Part of the sysfs path of a virtual disk.
const VIRTUAL: &[u8] = b"/virtual/";
/// Name prefixes of a machine's disks: virtio, SCSI (also ATA, USB), CD-ROMs, NVMe, IDE, Xen.
const DRIVERS: [&str; 6] = ["vd", "sd", "sr", "nvme", "hd", "xvd"];

/// Mount options for a 9p share.
const PLAN9_OPTIONS: [(&CStr, &CStr); 3] =
    [(c"trans", c"virtio"), (c"access", c"0"), (c"msize", c"131072")];

pub(super) enum SourceError {
    Absent,
    Bad(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Virtiofs,
    Plan9,
    Iso,
}

impl Source {
    /// Returns name, virtio device type (a disk may have several), modules, and file system.
    fn about(
        self,
    ) -> (&'static str, Option<&'static Kind>, &'static [&'static str], &'static CStr) {
        match self {
            Self::Virtiofs => ("virtiofs share \"config\"", Some(&FS), &["virtiofs"], c"virtiofs"),
            Self::Plan9 => ("9p share \"config\"", Some(&PLAN9), &["9pnet_virtio", "9p"], c"9p"),
            Self::Iso => ("disk \"incus-agent\"", None, &["virtio_blk", "isofs"], c"iso9660"),
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.about().0
    }

    /// Returns all sources, those with a visible device first, because loading an unneeded file
    /// system module takes as long as the rest of the start. The disk precedes sources without a
    /// visible device.
    pub(super) fn in_order(root: &Path) -> impl Iterator<Item = Self> {
        const ALL: [(Source, bool); 5] = [
            (Source::Virtiofs, true),
            (Source::Plan9, true),
            (Source::Iso, true),
            (Source::Virtiofs, false),
            (Source::Plan9, false),
        ];
        let no_sysfs = entries(&root.join("sys/bus/virtio/devices")).is_empty();
        let is_visible = move |source: Self| {
            let stage = source.about().1.map(|kind| devices::find(root, kind));
            no_sysfs || stage.is_none_or(|stage| stage > Device::Pci)
        };
        ALL.into_iter()
            .filter_map(move |(source, visible)| (is_visible(source) == visible).then_some(source))
    }

    /// Mounts the source.
    /// Errors: [`SourceError`], from the mount's error, the device's stage and the modules' errors.
    pub(super) fn mounted(self, options: &Options) -> Result<Mounted, SourceError> {
        let root = options.root.as_path();
        let (name, device_kind, modules, kind) = self.about();
        let mut loaded = Ok(());
        for module in modules {
            // Not fatal: a module may be built in but not listed, so the mount decides.
            loaded = loaded.and(modules::load(root, module));
        }
        let device = match self {
            Self::Virtiofs | Self::Plan9 => TAG.to_owned(),
            Self::Iso => {
                // If the agent waits at start, it retries anyway.
                let scan = if options.waits() { Duration::ZERO } else { SCAN };
                let disk = disk(root, scan).ok_or_else(|| undriven(root))?;
                CString::new(disk.into_os_string().into_encoded_bytes()).unwrap_or_default()
            }
        };
        let is_plan9 = self == Self::Plan9;
        let mut share = mounted(kind, &device, is_plan9);
        if share.as_ref().err() == Some(&Errno::NOSYS) {
            // Separate directories, because the agent and `--check` may run at the same time.
            let own = if options.is_agent() { run_dir::SHARE } else { run_dir::CHECKED_SHARE };
            share = mounted_before(root.join(own), kind, &device, is_plan9);
        }
        let why = match share.and_then(Mounted::enter) {
            Ok(mounted) => return Ok(mounted),
            Err(why) => why,
        };
        let stage = device_kind.map(|kind| devices::find(root, kind));
        Err(match (why, loaded) {
            // Without its device a share cannot be mounted, whatever the error.
            _ if stage == Some(Device::Absent) => SourceError::Absent,
            // The device exists, but has another tag.
            (Errno::INVAL | Errno::NOENT, _) if stage.is_some() => SourceError::Absent,
            (Errno::NODEV, Err(why)) => SourceError::Bad(format!("{name}: {why}")),
            (error, _) => SourceError::Bad(format!("{name}: {error}")),
        })
    }
}

/// A detached mount, the working directory until dropped, because its files have no other paths.
pub(super) struct Mounted {
    back: OwnedFd,
    _share: OwnedFd,
}

impl Mounted {
    /// Changes the directory to the mount. Nothing that depends on it runs yet.
    fn enter(share: OwnedFd) -> Result<Self, Errno> {
        let back = directory(Path::new("."))?;
        fchdir(&share)?;
        Ok(Self { back, _share: share })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _entered = fchdir(&self.back);
    }
}

fn mounted(kind: &CStr, device: &CStr, is_plan9: bool) -> Result<OwnedFd, Errno> {
    let new = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&new, c"source", device)?;
    fsconfig_set_flag(&new, c"ro")?;
    for (name, value) in PLAN9_OPTIONS.iter().filter(|_| is_plan9) {
        fsconfig_set_string(&new, *name, *value)?;
    }
    fsconfig_create(&new)?;
    let rights = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&new, FsMountFlags::FSMOUNT_CLOEXEC, rights)
}

/// Mounts a share before Linux 5.2, with a short-lived mount in a directory.
fn mounted_before(
    place: PathBuf,
    kind: &CStr,
    device: &CStr,
    is_plan9: bool,
) -> Result<OwnedFd, Errno> {
    make_directory(&place).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    let data = is_plan9.then_some(c"trans=virtio,access=0,msize=131072");
    let name = &*file::name(&place)?;
    // An agent that was killed here has left its mount, which would prevent a new one.
    let _left = unmount(name, UnmountFlags::DETACH);
    let share = mount(device, name, kind, flags, data).and_then(|()| directory(&place));
    let _none = unmount(name, UnmountFlags::DETACH);
    let _ours = file::rmdir(&place);
    share
}

/// Opens a directory for fchdir(2) and unlinkat(2).
fn directory(path: &Path) -> Result<OwnedFd, Errno> {
    file::open(path, OFlags::PATH | OFlags::DIRECTORY).map(OwnedFd::from)
}

/// Returns why the disk is not found: no such disk, or no driver.
fn undriven(root: &Path) -> SourceError {
    for (kind, driver) in [(&BLOCK, "virtio_blk"), (&SCSI, "virtio_scsi")] {
        if let Err(why) = modules::drive(root, kind, "a disk", driver) {
            return SourceError::Bad(why);
        }
    }
    SourceError::Absent
}

/// Finds Incus' config disk, a CD-ROM (P§1.2). On a SCSI bus its drivers may have to be loaded
/// first; the kernel then scans the bus in the background.
fn disk(root: &Path, scan: Duration) -> Option<PathBuf> {
    let found = find_disk(root, LABEL);
    if found.is_some() || devices::find(root, &SCSI) == Device::Absent {
        return found;
    }
    modules::prepare(root, &["virtio_scsi", "sr_mod"]);
    look_for(scan, || find_disk(root, LABEL))
}

/// Returns the block device whose volume has this label. Reads only disks of the machine: a user
/// may control others (a loop device) or make them hang (nbd).
fn find_disk(root: &Path, label: &str) -> Option<PathBuf> {
    let devices = root.join("dev");
    if !is_roots_alone(&devices) {
        return None;
    }
    for entry in entries(&root.join("sys/block")).into_iter().take(DEVICES) {
        let name = entry.file_name()?;
        let path = devices.join(name);
        if is_of_machine(&entry, name.as_encoded_bytes())
            // The group `disk` may have write access.
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
mod tests;
