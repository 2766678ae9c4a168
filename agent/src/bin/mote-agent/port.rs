//! The status port: found by name, with and without udev, and never waited for (P§2.1).

use std::fs::{File, OpenOptions, read_dir, read_to_string};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mote_agent::flavour::{Flavour, LEGACY_PORT, PORT_NAMES};
use rustix::fs::OFlags;

/// A port and what its name tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where to open it.
    pub(crate) path: PathBuf,
    /// Which server has such a port.
    pub(crate) flavour: Flavour,
    /// The dummy port beside it, good for a kick.
    pub(crate) legacy: Option<PathBuf>,
}

/// Looks for the port by its three names.
pub(crate) fn discover(root: &Path) -> Option<Found> {
    let ports = PORT_NAMES.iter().find_map(|(name, flavour)| Some((named(root, name)?, *flavour)));
    let (path, flavour) = ports?;
    let legacy = match flavour {
        Flavour::LxdOld => None,
        Flavour::Incus | Flavour::Lxd => named(root, LEGACY_PORT),
    };
    Some(Found { path, flavour, legacy })
}

/// The port of that name: udev's link, or the kernel's own list.
fn named(root: &Path, name: &str) -> Option<PathBuf> {
    let link = root.join("dev/virtio-ports").join(name);
    if link.exists() {
        return Some(link);
    }
    let entries = read_dir(root.join("sys/class/virtio-ports")).ok()?;
    entries.flatten().find_map(|entry| {
        let theirs = read_to_string(entry.path().join("name")).ok()?;
        (theirs.trim_end() == name).then(|| root.join("dev").join(entry.file_name()))
    })
}

/// An open port. All of it is non-blocking: a write to a port whose host does not read would hang
/// for ever otherwise.
#[derive(Debug)]
pub(crate) struct Port(File);

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Port {
    /// Opens it; a port has one opener, so `ResourceBusy` means that another agent is there.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        if file.metadata()?.is_file() {
            // It would take what we write, and keep it.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a plain file is no port"));
        }
        Ok(Self(file))
    }

    /// Writes. QEMU raises an event only when the port is closed after it.
    ///
    /// # Errors
    /// `WouldBlock` if the host takes nothing, or the system's.
    pub(crate) fn write(&self, line: &[u8]) -> io::Result<()> {
        // The kernel takes a short line whole or not at all.
        match (&self.0).write(line)? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// What the host wrote; 0 if it is not there.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing, or the system's.
    pub(crate) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(out)
    }
}

/// Opens and closes the dummy port: QEMU holds back a port's second event for a second, but the dummy
/// has events of its own, and the host looks at any.
pub(crate) fn kick(dummy: &Path) {
    // Not there, or somebody else's: the host only learns of us a little later.
    drop(Port::open(dummy));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn kernel_port(root: &Path, node: &str, name: &str) {
        let directory = root.join("sys/class/virtio-ports").join(node);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("name"), format!("{name}\n")).unwrap();
    }

    #[test]
    fn the_newest_name_wins_and_the_dummy_is_known() {
        let root = crate::share::scratch("ports");
        assert_eq!(discover(&root), None);
        kernel_port(&root, "vport1p1", "org.linuxcontainers.lxd");
        let old = discover(&root).unwrap();
        assert_eq!((old.flavour, old.legacy), (Flavour::LxdOld, None));
        assert_eq!(old.path, root.join("dev/vport1p1"));
        kernel_port(&root, "vport1p2", "com.canonical.lxd");
        let new = discover(&root).unwrap();
        assert_eq!((new.flavour, new.legacy), (Flavour::Lxd, Some(root.join("dev/vport1p1"))));
        kernel_port(&root, "vport1p3", "org.linuxcontainers.incus");
        assert_eq!(discover(&root).unwrap().flavour, Flavour::Incus);
    }

    #[test]
    fn udevs_link_is_taken_first() {
        let root = crate::share::scratch("links");
        kernel_port(&root, "vport1p1", "com.canonical.lxd");
        let links = root.join("dev/virtio-ports");
        fs::create_dir_all(&links).unwrap();
        fs::write(links.join("com.canonical.lxd"), "").unwrap();
        assert_eq!(discover(&root).unwrap().path, links.join("com.canonical.lxd"));
    }
}
