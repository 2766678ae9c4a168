//! Finds the status port (P§2.1) by name, with or without udev, and loads its driver if it has
//! none. Without a port, the message gives the cause and what to do.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mote_core::flavour::{Flavour, LEGACY_PORT, PORT_NAMES, misspelt};
use mote_core::report::proc::number;
use rustix::fs::{Access, FileType, OFlags, fstat};
use rustix::io::Errno;

use crate::built;
use crate::handover::processes::{Proc, Process};
use crate::options::Options;
use crate::runtime::{Async, io_error, io_error_of, is_there, look_for, text_of};
use crate::sys::{file, sandbox};
use crate::system::devices::{self, CONSOLE, Device, entries};
use crate::system::modules;

/// Maximum wait for the ports' names after the start of the driver, which asks the host for them.
const NAMED: Duration = Duration::from_millis(500);

const NAMES: &str =
    "com.canonical.lxd, org.linuxcontainers.incus or (LXD 5.0) org.linuxcontainers.lxd";

/// Warning if both Incus and LXD have a port.
const TWO_SERVERS: &str =
    "ports of two servers: using Incus'; if the server is LXD, use --flavour lxd";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) flavour: Flavour,
    /// Path of the dummy port next to it, for [`kick`].
    pub(crate) legacy: Option<PathBuf>,
    /// Warning if the host may read another port.
    pub(crate) doubt: Option<String>,
}

/// Finds the port by its three possible names. If there are ports of two servers, `wanted` decides.
pub(crate) fn discover(root: &Path, wanted: Option<Flavour>) -> Option<Found> {
    let found = look(root, wanted)?;
    // The ports get their names one after another. A second search finds the current name of a port
    // that precedes the dummy.
    if found.flavour == Flavour::LxdOld { look(root, wanted) } else { Some(found) }
}

fn look(root: &Path, wanted: Option<Flavour>) -> Option<Found> {
    let ports = Ports { root, listed: OnceCell::new() };
    let port = |(name, flavour): &(&str, Flavour)| Some((ports.named(name)?, *flavour));
    // Next to a newer port, the old one is always a dummy.
    let wished = PORT_NAMES.iter().find(|(_, it)| Some(*it) == wanted && *it != Flavour::LxdOld);
    let (path, flavour) = wished.and_then(port).or_else(|| PORT_NAMES.iter().find_map(port))?;
    let legacy = match flavour {
        Flavour::LxdOld => None,
        Flavour::Incus | Flavour::Lxd => ports.named(LEGACY_PORT),
    };
    let doubt = match flavour {
        Flavour::LxdOld if built::STATE => misspelt_beside(&ports),
        Flavour::Incus if wanted.is_none() => {
            ports.named(PORT_NAMES[1].0).map(|_| TWO_SERVERS.to_owned())
        }
        Flavour::LxdOld | Flavour::Incus | Flavour::Lxd => None,
    };
    Some(Found { path, flavour, legacy, doubt })
}

struct Ports<'a> {
    root: &'a Path,
    /// Names and device nodes of the ports in sysfs, read once.
    listed: OnceCell<Vec<(String, PathBuf)>>,
}

impl Ports<'_> {
    /// Returns the path of the port with that name: from udev's link, or from the list in sysfs.
    fn named(&self, name: &str) -> Option<PathBuf> {
        let dev = self.root.join("dev");
        let link = dev.join("virtio-ports").join(name);
        if file::exists(&link) {
            // Use the device node itself, which also exists without udev.
            let node = dev.join(file::readlink(&link).ok()?.file_name()?);
            return Some(if file::exists(&node) { node } else { link });
        }
        let (_, node) = self.listed().iter().find(|(listed, _)| listed == name)?;
        Some(dev.join(node))
    }

    fn listed(&self) -> &[(String, PathBuf)] {
        self.listed.get_or_init(|| listed(self.root))
    }
}

/// Returns for each port the name that the host gave it, empty if none, and the name of its node.
fn listed(root: &Path) -> Vec<(String, PathBuf)> {
    let mut ports = Vec::new();
    for port in entries(&root.join("sys/class/virtio-ports")) {
        let name = text_of(&port, "name");
        ports.push((name.trim_ascii_end().to_owned(), port.file_name().unwrap_or_default().into()));
    }
    ports
}

/// Returns a warning if a port next to the old one has a misspelt name of a current server's port.
fn misspelt_beside(ports: &Ports<'_>) -> Option<String> {
    for (name, _) in ports.listed() {
        if let Some(meant) = misspelt(name) {
            return Some(format!(
                "port {name}: is its name a misspelt {meant}? The agent uses {LEGACY_PORT}, \
                 which only LXD before 5.20 reads"
            ));
        }
    }
    None
}

/// Returns the port given by `--port`, or else the one found by its name, if it can be opened.
/// Errors: a message with the reason and advice.
pub(crate) fn find(options: &Options) -> Result<Found, String> {
    if let Some(path) = &options.port {
        usable(path, "--port does not name a device; omit it to find the port by its name")?;
        let flavour = options.flavour.unwrap_or(Flavour::Lxd);
        return Ok(Found { path: path.clone(), flavour, legacy: None, doubt: None });
    }
    let found = discover(&options.root, options.flavour).ok_or_else(|| missing(&options.root))?;
    usable(&found.path, "the port has no device node: mount devtmpfs on /dev")?;
    Ok(found)
}

/// Checks that the agent may open the path, without opening it: a port has only one opener.
fn usable(path: &Path, absent: &str) -> Result<(), String> {
    let refused = |why: &dyn std::fmt::Display| Err(format!("{}: {why}", path.display()));
    match file::stat(path).map(|about| FileType::from_raw_mode(about.st_mode)) {
        Err(Errno::NOENT) => refused(&absent),
        Err(error) => refused(&error),
        Ok(FileType::RegularFile | FileType::Directory) => {
            refused(&"a file or directory is not a port: remove it, or name another with --port")
        }
        // In the sandbox, only open(2) shows whether the port can be opened; a new port cannot.
        Ok(_) if sandbox::is_entered() => Ok(()),
        Ok(_) => match file::access(path, Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => Ok(()),
            Err(error) => refused(&format_args!("{error}: run the agent as root")),
        },
    }
}

/// Returns why the VM has no status port. Loads the driver if it is missing.
fn missing(root: &Path) -> String {
    let mut foreign = String::new();
    for (name, node) in listed(root) {
        let comma = if foreign.is_empty() { "" } else { ", " };
        let _infallible = write!(foreign, "{comma}{name} ({})", node.display());
    }
    if !foreign.is_empty() {
        return format!("no port has a server's name: name one {NAMES}; there is only {foreign}");
    }
    if !is_there(root, "sys/bus")
        && let Some(why) = devices::unmounted(root)
    {
        return why.to_owned();
    }
    match modules::drive(root, &CONSOLE, "a virtio-serial device", "virtio_console") {
        Err(why) => why,
        Ok(Device::Driven) => {
            format!("the virtio-serial device has no port: add one named {NAMES}")
        }
        Ok(_) => format!("this VM has no virtio-serial device: add one with a port named {NAMES}"),
    }
}

/// Returns the flavour that the status port's name shows; with `--port`, the name of the port that
/// would be found without it.
pub(crate) fn flavour(options: &Options, found: &Result<Found, String>) -> Option<Flavour> {
    match &options.port {
        Some(_) => discover(&options.root, options.flavour).map(|found| found.flavour),
        None => found.as_ref().map(|found| found.flavour).ok(),
    }
}

/// Like [`find`], but waits up to [`NAMED`] for the ports' names if the driver runs.
/// Errors: as for [`find`].
pub(crate) fn find_early(options: &Options) -> Result<Found, String> {
    match find(options) {
        Err(_) if devices::find(&options.root, &CONSOLE) == Device::Driven => {
            look_for(NAMED, || find(options).ok()).map_or_else(|| find(options), Ok)
        }
        found => found,
    }
}

/// Part of the message for a busy port.
pub(super) const ONE: &str = "another process has it open, and only one process can";

/// Returns a message with the process that has the port open; `None` if no visible process has.
pub(crate) fn busy(root: &Path, path: &Path) -> Option<String> {
    let (pid, name) = holder(root, path)?;
    Some(format!("{} is busy: {ONE}; end process {pid} ({name})", path.display()))
}

/// Returns ID and name of another process of root that has the port open, as only root may.
pub(crate) fn holder(root: &Path, path: &Path) -> Option<(u64, String)> {
    // Resolve udev's link.
    let node = file::readlink(path).unwrap_or_else(|_| path.to_owned());
    let node = node.file_name()?.as_encoded_bytes();
    let proc = Proc::open(root)?;
    for path in entries(&root.join("proc")) {
        let pid = path.file_name().and_then(|name| number(name.as_encoded_bytes()));
        let Some(pid) = pid.filter(|pid| *pid != u64::from(std::process::id())) else { continue };
        if let Some(process) = proc.process(pid).filter(Process::is_roots_here)
            && process.has_open(&mut |_, link| link.strip_prefix(b"/dev/") == Some(node))
        {
            return Some((
                pid,
                String::from_utf8_lossy(process.name().trim_ascii_end()).into_owned(),
            ));
        }
    }
    None
}

/// An open port, non-blocking: otherwise a write would block forever if the host does not read.
pub(crate) struct Port(File);

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Port {
    /// Opens a port. Errors: `ResourceBusy` if another process has it open; `InvalidInput` if it is
    /// a regular file; any error of open(2).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = file::open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
            // A regular file would grow with each line.
            let why = "a regular file is not a port";
            return Err(io_error_of(ErrorKind::InvalidInput, why.into()));
        }
        Ok(Self(file))
    }

    /// Writes a line. QEMU raises an event only when the port is closed afterwards.
    /// Errors: `WouldBlock` if the host does not read; `WriteZero` after a partial write; any error
    /// of write(2).
    pub(crate) fn write(&self, line: &[u8]) -> io::Result<()> {
        // The kernel never splits a short line.
        match (&self.0).write(line)? {
            written if written == line.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Reads bytes from the host; returns their number, 0 if no host is connected.
    /// Errors: `WouldBlock` if there is nothing to read; any error of read(2).
    pub(crate) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(out)
    }
}

/// Registers the port with the reactor. Errors: any error of epoll_ctl(2).
pub(super) fn watched(port: Port) -> io::Result<Async<Port>> {
    Async::new_nonblocking(port).and_then(Async::watched).map_err(|error| {
        // epoll_ctl(2) refuses files such as /dev/zero.
        let no_port = error.kind() == ErrorKind::PermissionDenied;
        if no_port { io_error("that device is not a port") } else { error }
    })
}

/// Opens and closes the dummy port. QEMU delays a port's second event for up to a second, but the
/// dummy port has separate events, and the host reads the status port after any event.
pub(crate) fn kick(dummy: &Path) {
    // Ignore errors: the host then reads the status port a little later.
    drop(Port::open(dummy));
}

#[cfg(test)]
mod tests;
