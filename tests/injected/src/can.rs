//! What docs/explanation/security.md says that the process still can do.

use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::libc;

use crate::attempts::Argument::{Bytes, Number};
use crate::attempts::{number, path};
use crate::{Outcome, Probe};

/// A port of the host that has no listener.
const PORT: u32 = 2;
/// Highest descriptor to inspect.
const DESCRIPTORS: i32 = 64;

pub(crate) fn try_all(probe: &mut Probe<'_>) -> Result<(), Errno> {
    call_host(probe)?;
    use_files(probe);
    send_datagrams(probe)
}

fn connect(probe: &Probe<'_>, socket: u64, address: Vec<u8>) -> Result<u64, Errno> {
    let length = Number(address.len() as u64);
    probe.make(libc::SYS_connect, &[Number(socket), Bytes(address), length])
}

fn call_host(probe: &mut Probe<'_>) -> Result<(), Errno> {
    let arguments = [probe.around.family(), libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0].map(number);
    let socket = probe.make(libc::SYS_socket, &arguments)?;
    let said = match &probe.around.way {
        Way::Unix(host) => {
            let host = SocketAddr::from_pathname(host).map_err(|_| Errno::EINVAL)?;
            connect(probe, socket, unix(&host))
        }
        // On vsock, a connection in progress proves that the call is allowed.
        Way::Vsock => match connect(probe, socket, vsock(PORT)) {
            Err(Errno::EINPROGRESS | Errno::ECONNRESET) => Ok(0),
            said => said,
        },
    };
    probe.compare("call the host", said, Outcome::Done);
    probe.close(socket);
    if probe.around.forwards {
        probe.compare("connect to a TCP port", reach_port(probe), Outcome::Done);
    }
    Ok(())
}

/// Reads what anyone may read, writes the status, and removes devlxd's name, which it restores.
fn use_files(probe: &mut Probe<'_>) {
    let in_root = |path: &str| probe.around.root.join(path);
    let files = [
        ("/proc/stat".into(), libc::O_RDONLY),
        ("/proc/1/stat".into(), libc::O_RDONLY),
        (in_root("sys"), libc::O_RDONLY),
        (in_root("run/mote/ready"), libc::O_WRONLY),
        (in_root("run/mote/status"), libc::O_WRONLY),
    ];
    for (at, flags) in files {
        let said = probe.open(&at, flags);
        probe.compare(&format!("open {}", at.display()), said, Outcome::Done);
        if let Ok(file) = said {
            // Writes the first byte unchanged.
            if flags == libc::O_WRONLY
                && let Some(first) = fs::read(&at).ok().and_then(|bytes| bytes.first().copied())
            {
                let arguments = [Number(file), Bytes(vec![first]), Number(1)];
                let said = probe.make(libc::SYS_write, &arguments);
                probe.compare(&format!("write {}", at.display()), said, Outcome::Done);
            }
            probe.close(file);
        }
    }
    let (name, away) = (probe.around.guests.join("sock"), probe.around.guests.join("away"));
    for (from, to) in [(&name, &away), (&away, &name)] {
        let here = || number(libc::AT_FDCWD);
        let said = probe.make(libc::SYS_renameat, &[here(), path(from), here(), path(to)]);
        probe.compare("rename devlxd's socket", said, Outcome::Done);
    }
}

/// Sends through the service manager's datagram socket, which reaches only sockets that anyone may
/// write to.
fn send_datagrams(probe: &mut Probe<'_>) -> Result<(), Errno> {
    let Some(socket) = datagrams(probe)? else { return Ok(()) };
    let outcomes = [Outcome::Done, Outcome::Denied, Outcome::Denied];
    let names = ["everybody's socket", "root's socket", "a socket with an abstract name"];
    for (((address, taken), outcome), name) in probe.around.sockets.iter().zip(outcomes).zip(names)
    {
        if address.as_pathname().is_none() && !has_scopes() {
            continue;
        }
        probe.compare(
            &format!("connect to {name}"),
            connect(probe, socket, unix(address)),
            outcome,
        );
        if outcome == Outcome::Done {
            let said = probe.make(libc::SYS_write, &[Number(socket), Bytes(vec![b'x']), Number(1)]);
            let arrived = said.and_then(|_| taken.recv(&mut [0; 2]).map_err(|_| Errno::EAGAIN));
            probe.compare(&format!("send to {name}"), arrived.map(|length| length as u64), outcome);
        }
    }
    Ok(())
}

/// Returns the first of the agent's descriptors that is a unix datagram socket.
fn datagrams(probe: &Probe<'_>) -> Result<Option<u64>, Errno> {
    let option = |descriptor: i32, name| {
        let arguments = [
            number(descriptor),
            number(libc::SOL_SOCKET),
            number(name),
            Bytes(vec![0; 4]),
            Bytes(4_u32.to_ne_bytes().to_vec()),
        ];
        probe.make(libc::SYS_getsockopt, &arguments).ok()?;
        let mut value = [0; 4];
        probe.injected.read(0, &mut value).ok()?;
        Some(i32::from_ne_bytes(value))
    };
    let found = (0..DESCRIPTORS).find(|descriptor| {
        option(*descriptor, libc::SO_DOMAIN) == Some(libc::AF_UNIX)
            && option(*descriptor, libc::SO_TYPE) == Some(libc::SOCK_DGRAM)
    });
    Ok(found.map(|descriptor| descriptor.unsigned_abs().into()))
}

fn reach_port(probe: &Probe<'_>) -> Result<u64, Errno> {
    let arguments = [libc::AF_INET, libc::SOCK_STREAM, 0].map(number);
    let socket = probe.make(libc::SYS_socket, &arguments)?;
    let port = probe.around.tcp.local_addr().map_or(0, |address| address.port());
    let said = connect(probe, socket, ipv4(port));
    probe.close(socket);
    said
}

// What the attempts need around the agent: another process, and root's files and sockets that
// anyone may use.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Vsock,
    Unix(PathBuf),
}

/// The surroundings. Dropping them ends the process and removes the files.
pub struct Around {
    pub(crate) root: PathBuf,
    pub(crate) guests: PathBuf,
    pub(crate) way: Way,
    pub forwards: bool,
    pub(crate) open: PathBuf,
    pub(crate) other: Child,
    pub(crate) tcp: TcpListener,
    /// Datagram sockets: one for everyone, one for root only, and one with an abstract name.
    pub(crate) sockets: [(SocketAddr, UnixDatagram); 3],
}

impl Around {
    pub fn new(root: &Path, way: Way, directory: &Path) -> io::Result<Self> {
        let open = directory.join("open");
        fs::create_dir_all(&open)?;
        for name in ["file", "setuid"] {
            fs::write(open.join(name), "x")?;
        }
        let sleep = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn()?;
        // The name contains the directory, because other tests of this process need a socket, too.
        let name = format!("mote-injected {}", directory.display());
        let named = |name: &str| SocketAddr::from_pathname(open.join(name));
        let bound = |address: SocketAddr| {
            let socket = UnixDatagram::bind_addr(&address)?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>((address, socket))
        };
        let sockets = [
            bound(named("everybody")?)?,
            bound(named("root")?)?,
            bound(SocketAddr::from_abstract_name(name)?)?,
        ];
        let modes = [
            ("file", 0o777),
            ("setuid", 0o4755),
            ("everybody", 0o777),
            ("root", 0o600),
            (".", 0o777),
        ];
        for (name, mode) in modes {
            fs::set_permissions(open.join(name), Permissions::from_mode(mode))?;
        }
        let flavours = ["dev/lxd", "dev/incus"].map(|path| root.join(path));
        let guests = flavours.into_iter().find(|path| path.join("sock").exists());
        Ok(Self {
            root: root.to_owned(),
            guests: guests.ok_or_else(|| io::Error::other("no socket for guests"))?,
            way,
            forwards: false,
            open,
            other: sleep,
            tcp: TcpListener::bind(("127.0.0.1", 0))?,
            sockets,
        })
    }

    pub fn other_lives(&mut self) -> bool {
        matches!(self.other.try_wait(), Ok(None))
    }

    pub(crate) fn family(&self) -> i32 {
        if self.way == Way::Vsock { libc::AF_VSOCK } else { libc::AF_UNIX }
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        let _gone = self.other.kill();
        let _reaped = self.other.wait();
        let _removed = fs::remove_dir_all(&self.open);
    }
}

/// Returns whether Landlock can deny abstract sockets of other processes: since Linux 6.12.
pub(crate) fn has_scopes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 12)
}

/// Returns a unix socket's address as the kernel reads it.
pub(crate) fn unix(address: &SocketAddr) -> Vec<u8> {
    let mut bytes = family(libc::AF_UNIX);
    if let Some(path) = address.as_pathname() {
        bytes.extend(path.as_os_str().as_bytes());
        bytes.push(0);
    } else {
        bytes.push(0);
        bytes.extend(address.as_abstract_name().unwrap_or_default());
    }
    bytes
}

pub(crate) fn ipv4(port: u16) -> Vec<u8> {
    let mut bytes = family(libc::AF_INET);
    bytes.extend(port.to_be_bytes());
    bytes.extend([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

pub(crate) fn vsock(port: u32) -> Vec<u8> {
    let mut bytes = family(libc::AF_VSOCK);
    bytes.extend([0; 2]);
    bytes.extend(port.to_ne_bytes());
    bytes.extend(libc::VMADDR_CID_HOST.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn family(number: i32) -> Vec<u8> {
    u16::try_from(number).unwrap_or(0).to_ne_bytes().to_vec()
}
