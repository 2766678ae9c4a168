//! Sockets towards host and guests: vsock or, for tests, unix sockets (named like
//! vhost-device-vsock's) or TCP (feature `tcp`). All are non-blocking.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use mote_core::host_address::HostAddress;
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};

use crate::runtime::{Async, Fair};
use crate::sys::file::OFlags;
use crate::sys::{self, VsockAddr, file, listener};

/// Any context id, so that a listener survives a change of the guest's id (P§3.1).
const CID_ANY: u32 = u32::MAX;
/// The host's context id. mote serves callers with this or a lower id, except loopback's (1).
const CID_HOST: u32 = 2;
/// The vsock port that the host calls (P§3.1).
pub(crate) const AGENT_PORT: u32 = 8443;
const LISTENER: VsockAddr = VsockAddr { cid: CID_ANY, port: AGENT_PORT };
/// Suffix of the unix socket that stands for this port.
const LISTENS: &str = ".listen_8443";
/// Listen queue: connections that wait while the agent is busy or all permits are taken. Beyond it,
/// a non-blocking client gets `EAGAIN`, which Go and Python clients do not retry. The kernel's
/// default maximum, like the Go agents'.
const BACKLOG: i32 = 4096;

pub(crate) type Socket = Async<OwnedFd>;

#[derive(Clone, Debug, Default)]
pub(crate) enum Transport {
    /// AF_VSOCK.
    #[default]
    Vsock,
    /// Unix sockets with this path prefix (tests).
    Unix(PathBuf),
    /// TCP on loopback, with the agent's port (tests). The host's address contains its port.
    #[cfg(feature = "tcp")]
    Tcp(u16),
}

/// A socket that the host calls. mote's reactor registers it at the first wait, because the sandbox
/// comes first.
pub(crate) struct Listener {
    transport: Transport,
    socket: Socket,
}

impl Transport {
    /// Listens where the host will call, or takes the listener that the previous agent handed over.
    pub(crate) fn listen(&self) -> io::Result<Listener> {
        let kept = self.name().and_then(|name| listener::kept(&name));
        let socket = match kept {
            Some(socket) => socket,
            None => self.bind()?,
        };
        Ok(Listener { transport: self.clone(), socket: Async::new_nonblocking(socket)? })
    }

    fn bind(&self) -> io::Result<OwnedFd> {
        let fd = match self {
            Self::Vsock => {
                let fd = stream(AddressFamily::VSOCK)?;
                bind(&fd, &LISTENER)?;
                fd
            }
            Self::Unix(prefix) => return bind_unix(&suffixed(prefix, LISTENS)),
            #[cfg(feature = "tcp")]
            Self::Tcp(port) => {
                let fd = stream(AddressFamily::INET)?;
                bind(&fd, &loopback(*port))?;
                fd
            }
        };
        listen(&fd, BACKLOG)?;
        Ok(fd)
    }

    /// Hands the listener to the program that this process re-executes, or revokes that.
    pub(crate) fn hand_on(&self, is_kept: bool) {
        if let Some(name) = self.name() {
            let flags = if is_kept { FdFlags::empty() } else { FdFlags::CLOEXEC };
            listener::keep(&name, flags);
        }
    }

    /// Takes the descriptor `socket` from another agent, if it is that agent's listener.
    pub(crate) fn take_over(&self, agent: &impl AsFd, socket: RawFd) -> bool {
        self.name().is_some_and(|name| listener::take(agent, socket, &name))
    }

    fn name(&self) -> Option<Vec<u8>> {
        match self {
            Self::Vsock => Some(listener::name(&LISTENER)),
            Self::Unix(prefix) => {
                let path = unnamed(&suffixed(prefix, LISTENS));
                SocketAddrUnix::new(&path).ok().map(|address| listener::name(&address))
            }
            #[cfg(feature = "tcp")]
            Self::Tcp(_) => None,
        }
    }

    /// Returns whether the transport needs the kernel's vsock.
    pub(crate) fn is_vsock(&self) -> bool {
        matches!(self, Self::Vsock)
    }

    pub(crate) fn family(&self) -> AddressFamily {
        match self {
            Self::Vsock => AddressFamily::VSOCK,
            Self::Unix(_) => AddressFamily::UNIX,
            #[cfg(feature = "tcp")]
            Self::Tcp(_) => AddressFamily::INET,
        }
    }

    /// Connects to the host once; the caller sets the deadline. Errors: any error of connect(2);
    /// `ConnectionReset` or `ConnectionRefused` if nothing listens.
    pub(crate) async fn dial(&self, address: HostAddress) -> io::Result<Socket> {
        let fd = stream(self.family())?;
        let started = match self {
            Self::Vsock => connect(&fd, &VsockAddr { cid: address.cid, port: address.port }),
            Self::Unix(prefix) => {
                let path = suffixed(prefix, &format!("_{}", address.port));
                connect(&fd, &SocketAddrUnix::new(&path)?)
            }
            #[cfg(feature = "tcp")]
            Self::Tcp(_) => {
                let port = u16::try_from(address.port).map_err(io::Error::other)?;
                connect(&fd, &loopback(port))
            }
        };
        finish(fd, started).await
    }
}

impl Listener {
    /// Accepts one connection. Closes a vsock connection that is not the host's before it costs a
    /// handshake: any local user could connect through vsock's loopback.
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        let fair = Fair::default();
        loop {
            fair.one_more().await;
            let socket = accept(&self.socket).await?;
            let peer = match self.transport {
                Transport::Vsock => sys::vsock_peer(socket.get_ref()),
                Transport::Unix(_) => return Ok(socket),
                #[cfg(feature = "tcp")]
                Transport::Tcp(_) => return Ok(socket),
            };
            if peer.is_some_and(|peer| peer.cid <= CID_HOST && peer.cid != 1) {
                return Ok(socket);
            }
        }
    }
}

#[cfg(feature = "tcp")]
fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, port))
}

/// Connects to a TCP port once; the caller sets the deadline.
pub(crate) async fn dial_tcp(address: SocketAddr) -> io::Result<Socket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = stream(family)?;
    let started = connect(&fd, &address);
    finish(fd, started).await
}

async fn finish(fd: OwnedFd, started: rustix::io::Result<()>) -> io::Result<Socket> {
    let socket = Async::new_nonblocking(fd)?;
    match started {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    socket.writable().await?;
    match sockopt::socket_error(socket.get_ref())? {
        Ok(()) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Listens on a unix socket of mode 0600 that replaces any file at `path`. The socket is renamed to
/// `path` once it listens, so that a client that finds it can connect: before listen(2) it would be
/// refused, and removing the old name first would leave a gap.
fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let fd = bind_unnamed(path)?;
    file::rename(&unnamed(path), path)?;
    Ok(fd)
}

/// Listens on the socket under its temporary name, [`unnamed`].
pub(crate) fn bind_unnamed(path: &Path) -> io::Result<OwnedFd> {
    let unnamed = unnamed(path);
    match file::unlink(&unnamed) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let fd = stream(AddressFamily::UNIX)?;
    // The umask is 077, so no other user can connect before the mode is set.
    bind(&fd, &SocketAddrUnix::new(&unnamed)?)?;
    file::chmod(&unnamed, 0o600)?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Returns the temporary name of a socket.
pub(crate) fn unnamed(path: &Path) -> PathBuf {
    suffixed(path, ".new")
}

/// Errors: any error of accept(2) but `EAGAIN`.
pub(crate) async fn accept(listener: &Socket) -> io::Result<Socket> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = listener.read_with(|fd| Ok(accept_with(fd, flags)?)).await?;
    Async::new_nonblocking(fd)
}

/// Returns the user id of a unix socket's peer when it connected, or 65534 (nobody) if unknown.
pub(crate) fn user(socket: &Socket) -> u32 {
    sockopt::socket_peercred(socket.get_ref()).map_or(65_534, |peer| peer.uid.as_raw())
}

fn stream(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None)
}

fn suffixed(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Checks that vsock is usable: opens and binds a socket, and returns the guest's context id.
/// Errors: why not.
pub(crate) fn probe_vsock(root: &Path) -> Result<u32, String> {
    let fd = stream(AddressFamily::VSOCK).map_err(|why| format!("no vsock sockets: {why}"))?;
    bind(&fd, &VsockAddr { cid: CID_ANY, port: u32::MAX })
        .map_err(|why| format!("cannot bind a vsock: {why}"))?;
    let device = file::open(&root.join("dev/vsock"), OFlags::RDONLY).map_err(io::Error::from);
    match device.and_then(|device| sys::vsock_local_cid(&device)) {
        Ok(u32::MAX) => Err("no vsock device, or its driver is not loaded".into()),
        cid => cid.map_err(|why| format!("/dev/vsock: {why}")),
    }
}

/// Returns whether an error of accept(2) is temporary: a local shortage, or a caller that left.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    is_shortage(error) || is_one_of(error, &[Errno::CONNABORTED, Errno::CONNRESET, Errno::INTR])
}

/// Returns whether the agent or its machine is out of descriptors or memory.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM])
}

fn is_one_of(error: &io::Error, those: &[Errno]) -> bool {
    let code = error.raw_os_error();
    code.is_some_and(|code| those.iter().any(|errno| errno.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;
    use smol::future::FutureExt;
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    #[test]
    fn clients_can_connect_once_the_socket_exists() {
        let scratch = crate::runtime::scratch("socket");
        let path = scratch.join("sock");
        let done = AtomicBool::new(false);
        // A client that looked the name up just before its replacement is refused by the closed
        // socket, which the kernel cannot prevent. So a refusal counts only if nothing was closed
        // meanwhile.
        let closed = AtomicU32::new(0);
        std::thread::scope(|threads| {
            let client = threads.spawn(|| {
                let mut found = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    let before = closed.load(Ordering::SeqCst);
                    match UnixStream::connect(&path) {
                        Ok(_) => found += 1,
                        Err(error) if before != closed.load(Ordering::SeqCst) => drop(error),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
                    }
                }
                found
            });
            // First replaces a socket, then creates one where none exists.
            for round in 0..2_000 {
                let first = bind_unix(&path).and_then(Async::new_nonblocking).expect("a socket");
                let second = bind_unix(&path)
                    .and_then(Async::new_nonblocking)
                    .expect("a socket in its place");
                if round % 2 == 0 {
                    std::thread::yield_now();
                }
                std::fs::remove_file(&path).expect("a name to remove");
                closed.fetch_add(1, Ordering::SeqCst);
                drop((first, second));
            }
            done.store(true, Ordering::Relaxed);
            assert!(client.join().expect("a client never refused") > 0);
        });
    }

    #[test]
    fn replaces_a_stale_socket_and_leaves_no_other_file() {
        let scratch = crate::runtime::scratch("stale-socket");
        let path = scratch.join("sock");
        drop(std::os::unix::net::UnixListener::bind(suffixed(&path, ".new")).expect("a stale one"));
        std::fs::write(&path, "a file").expect("a file in its place");
        let _listener = bind_unix(&path).and_then(Async::new_nonblocking).expect("a socket");
        let names: Vec<_> = std::fs::read_dir(&scratch)
            .expect("the directory")
            .map(|entry| entry.expect("a name").file_name())
            .collect();
        assert_eq!(names, ["sock"]);
        let about = std::fs::metadata(&path).expect("the socket");
        assert!(about.file_type().is_socket());
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).expect("a listener");
    }

    #[test]
    fn endless_foreign_connections_do_not_block_other_tasks() {
        let scratch = crate::runtime::scratch("many-clients");
        let path = scratch.join("sock");
        let listener = bind_unix(&path).and_then(Async::new_nonblocking).expect("a socket");
        // Clients that do not use vsock are not the host.
        let clients = [(); 40].map(|()| UnixStream::connect(&path).expect("a connection"));
        let mut last = clients.last().expect("one of them");
        last.set_nonblocking(true).expect("a socket");
        let executor = smol::LocalExecutor::new();
        let other = executor.spawn(async move { last.read(&mut [0]).map_err(|why| why.kind()) });
        let seen = block_on(&executor, async {
            let listener = Listener { transport: Transport::Vsock, socket: listener };
            let never = async move { Err(listener.accept().await.expect("nobody")) };
            never.or(async { Ok(other.await) }).await.ok()
        });
        assert_eq!(seen, Some(Err(io::ErrorKind::WouldBlock)), "all were closed before");
    }
}
