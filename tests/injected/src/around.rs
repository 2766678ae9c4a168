//! The surroundings of the agent for attempts: another process, files and sockets of root's that
//! anyone may use.

use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::libc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Vsock,
    /// A unix socket instead of it.
    Unix(PathBuf),
}

/// The surroundings. Dropping them ends the process and removes the files.
#[derive(Debug)]
pub struct Around {
    /// The agent's root directory.
    pub(crate) root: PathBuf,
    /// Directory of devlxd's socket.
    pub(crate) guests: PathBuf,
    pub(crate) way: Way,
    /// Whether the guest's policy allows port-forward.
    pub forwards: bool,
    /// A directory that anyone may write to.
    pub(crate) open: PathBuf,
    /// An idle process of root's.
    pub(crate) other: Child,
    /// Accepts TCP connections.
    pub(crate) tcp: TcpListener,
    /// Datagram sockets: anyone's, root's, and one with an abstract name.
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
        let name = format!("mote-injected-{}", std::process::id());
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

    /// Returns the family of the sockets by which the agent calls its host.
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

/// Returns whether Landlock denies a sandbox abstract sockets of others: since Linux 6.12.
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
