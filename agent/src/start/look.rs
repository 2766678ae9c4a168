//! Lists devices, drivers and the host's files, so that a waiting agent notices changes.

use crate::config::files;
use crate::options::Options;
use crate::sys::file;
use crate::system::devices::entries;

/// Directories in which new devices and drivers appear, relative to the root.
#[rustfmt::skip] // several in a line
const DIRECTORIES: [&str; 8] = [
    "dev", "lib/modules", "sys/bus", "sys/bus/pci/devices", "sys/bus/virtio/devices",
    "sys/class/block", "sys/class/virtio-ports", "sys/module",
];

/// Lists devices, drivers, config files, and whether it is time for the stored files.
pub(super) fn look(options: &Options) -> Vec<u8> {
    let mut seen = Vec::with_capacity(4096);
    for directory in DIRECTORIES {
        for path in entries(&options.root.join(directory)) {
            seen.extend_from_slice(path.as_os_str().as_encoded_bytes());
            seen.push(0);
        }
    }
    for directory in files::directories(options) {
        for name in files::NAMES {
            if let Ok(about) = file::stat(&directory.join(name)) {
                let size = about.st_size.unsigned_abs();
                let (seconds, nanoseconds) = (about.st_mtime.unsigned_abs(), about.st_mtime_nsec);
                for number in [about.st_ino, size, seconds, nanoseconds] {
                    seen.extend_from_slice(&number.to_ne_bytes());
                }
            }
        }
    }
    seen.push((options.remember.is_some() && files::is_time(options)).into());
    seen
}
