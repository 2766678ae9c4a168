//! The VM's virtio devices as sysfs shows them.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mote_core::report::proc::number;
use rustix::fs::RawDir;

use crate::runtime::{is_there, read_text, text_of};
use crate::sys::file::{self, OFlags};

/// A device type (VIRTIO 1.2 §5) as in sysfs on the virtio bus and on PCI. The PCI number is the
/// modern one, 0x1040 plus the type (§4.1.2).
pub(crate) struct Kind {
    virtio: &'static str,
    pci: &'static str,
}

pub(crate) const BLOCK: Kind = Kind { virtio: "0x0002", pci: "0x1042" };
pub(crate) const CONSOLE: Kind = Kind { virtio: "0x0003", pci: "0x1043" };
pub(crate) const BALLOON: Kind = Kind { virtio: "0x0005", pci: "0x1045" };
pub(crate) const SCSI: Kind = Kind { virtio: "0x0008", pci: "0x1048" };
pub(crate) const PLAN9: Kind = Kind { virtio: "0x0009", pci: "0x1049" };
pub(crate) const VSOCK: Kind = Kind { virtio: "0x0013", pci: "0x1053" };
pub(crate) const MEMORY: Kind = Kind { virtio: "0x0018", pci: "0x1058" };
pub(crate) const FS: Kind = Kind { virtio: "0x001a", pci: "0x105a" };

/// PCI vendor of all virtio devices (§4.1.2).
const VENDOR: &str = "0x1af4";
/// PCI number of QEMU's shared memory (ivshmem), which has the same vendor.
const SHARED_MEMORY: &str = "0x1110";

/// Maximum number of examined directory entries (1 MB of memory), because users decide how many
/// processes `/proc` has.
const ENTRIES: usize = 16 * 1024;
/// Size of the buffer for directory entries, in bytes.
const PIECE: usize = 4 * 1024;

/// How far a device has been set up, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Device {
    /// The device is on neither bus.
    Absent,
    /// The device is only on the PCI bus: `virtio_pci` is missing.
    Pci,
    /// The device is on the virtio bus, but has no driver of its own.
    Bus,
    /// The device is bound to a driver.
    Driven,
}

/// Returns the stage of the device of this type, or the furthest of several.
pub(crate) fn find(root: &Path, kind: &Kind) -> Device {
    let mut furthest = Device::Absent;
    for path in entries(&root.join("sys/bus/virtio/devices")) {
        if says(&path, "device", kind.virtio) {
            let driven = is_there(&path, "driver");
            furthest = furthest.max(if driven { Device::Driven } else { Device::Bus });
        }
    }
    if furthest == Device::Absent && waits_on_pci(root, Some(kind)) {
        return Device::Pci;
    }
    furthest
}

/// Returns whether a virtio device of this type, or of any, is on the PCI bus only. A device with a
/// driver is also on the virtio bus.
pub(crate) fn waits_on_pci(root: &Path, kind: Option<&Kind>) -> bool {
    entries(&root.join("sys/bus/pci/devices")).iter().any(|path| {
        !is_there(path, "driver")
            && says(path, "vendor", VENDOR)
            && match kind {
                // A transitional device has its type as the subsystem number.
                Some(Kind { virtio, pci }) => {
                    says(path, "device", pci) || says(path, "subsystem_device", virtio)
                }
                None => !says(path, "device", SHARED_MEMORY),
            }
    })
}

pub(crate) fn says(device: &Path, name: &str, number: &str) -> bool {
    read_text(&device.join(name)).is_ok_and(|text| text.trim_ascii_end() == number)
}

/// Returns a sysfs entry's identity, or 0 if it does not exist. Unlike its name, it is unique in
/// one boot and grows with time (Linux 5.5, `fs/kernfs/dir.c`: `idr_alloc_cyclic`).
pub(crate) fn identity(path: &Path) -> u64 {
    file::stat(path).map_or(0, |about| about.st_ino)
}

/// Returns a number in sysfs, or 0 if there is none.
pub(crate) fn number_of(device: &Path, attribute: &str) -> u64 {
    let text = text_of(device, attribute);
    number(text.trim_ascii_end().as_bytes()).unwrap_or(0)
}

/// Returns a directory's first [`ENTRIES`] paths, unsorted; empty if it cannot be read.
pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let Ok(open) = file::open(directory, OFlags::DIRECTORY) else { return paths };
    // Allocate it, because used pages of the stack stay in memory.
    let mut space = vec![MaybeUninit::uninit(); PIECE];
    let mut listed = RawDir::new(&open, &mut space);
    while let Some(Ok(entry)) = listed.next()
        && paths.len() < ENTRIES
    {
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            paths.push(directory.join(OsStr::from_bytes(name)));
        }
    }
    paths
}

/// Message if `/proc` is missing: workers are started through it, and reports read it.
pub(crate) const NO_PROC: &str =
    "/proc is not mounted, so the host gets no files, state or metrics: mount -t proc proc /proc";

/// Returns [`NO_PROC`] if `/proc` is not mounted.
pub(crate) fn without_proc(root: &Path) -> Option<&'static str> {
    (!is_there(root, "proc/self")).then_some(NO_PROC)
}

/// Returns advice if `/sys` or `/dev` is not mounted.
pub(crate) fn unmounted(root: &Path) -> Option<&'static str> {
    let is_there = |path: &str| is_there(root, path);
    if !is_there("sys/bus") {
        return Some("/sys is not mounted: mount -t sysfs sysfs /sys");
    }
    let is_dev = is_there("dev/null") || is_there("dev/console");
    (!is_dev).then_some("/dev is empty: mount -t devtmpfs devtmpfs /dev")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::put;

    #[test]
    fn reads_a_devices_stage_from_sysfs() {
        let root = crate::runtime::scratch("devices");
        assert_eq!(find(&root, &CONSOLE), Device::Absent);
        // A device of another vendor with the same number, and shared memory.
        for (at, vendor, device) in [(1, "0x8086\n", "0x1043\n"), (2, "0x1af4\n", "0x1110\n")] {
            put(&root, &format!("sys/bus/pci/devices/0000:00:0{at}.0/vendor"), vendor);
            put(&root, &format!("sys/bus/pci/devices/0000:00:0{at}.0/device"), device);
        }
        assert_eq!(find(&root, &CONSOLE), Device::Absent);
        assert!(!waits_on_pci(&root, None));
        // A transitional console has the number 0x1003; only the subsystem has the type.
        let files = [("vendor", "0x1af4"), ("device", "0x1003"), ("subsystem_device", "0x0003")];
        for (name, text) in files {
            put(&root, &format!("sys/bus/pci/devices/0000:00:03.0/{name}"), text);
        }
        assert_eq!(find(&root, &CONSOLE), Device::Pci);
        for (name, text) in [("vendor", "0x1af4\n"), ("device", "0x105a\n")] {
            put(&root, &format!("sys/bus/pci/devices/0000:00:04.0/{name}"), text);
        }
        assert_eq!((find(&root, &FS), find(&root, &VSOCK)), (Device::Pci, Device::Absent));
        put(&root, "sys/bus/virtio/devices/virtio0/device", "0x0003\n");
        assert_eq!(find(&root, &CONSOLE), Device::Bus);
        put(&root, "sys/bus/virtio/devices/virtio0/driver/x", "");
        assert_eq!((find(&root, &CONSOLE), find(&root, &FS)), (Device::Driven, Device::Pci));
    }
}
