//! Sockets towards host and guests: vsock or, for tests, the unix sockets that stand in for it
//! (named as vhost-device-vsock names them). All are non-blocking descriptors under the reactor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mote_agent::status::Address;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};

use crate::fair::Fair;
use crate::reactor::Async;
use crate::sys::{self, VsockAddr};

/// Any context id: survives a change of our own (P§3.1).
const CID_ANY: u32 = u32::MAX;
/// The host, and what is below it: the only callers we speak to.
const CID_HOST: u32 = 2;
/// Where the host expects us (P§3.1).
pub(crate) const AGENT_PORT: u32 = 8443;
/// Connections the kernel keeps for us while we are busy or all places are taken. A guest over it that
/// does not block gets EAGAIN, which clients in Go and Python do not try again. As many as the kernel
/// allows by default, which is what the Go agents ask for.
const BACKLOG: i32 = 4096;

/// A connected socket.
pub(crate) type Socket = Async<OwnedFd>;

/// How the host is reached.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    /// AF_VSOCK.
    Vsock,
    /// Unix sockets that begin with this path (tests).
    Unix(PathBuf),
}

impl Transport {
    /// Listens where the host will call.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen(&self) -> io::Result<Socket> {
        match self {
            Self::Vsock => {
                let fd = stream(AddressFamily::VSOCK)?;
                bind(&fd, &VsockAddr { cid: CID_ANY, port: AGENT_PORT })?;
                listen(&fd, BACKLOG)?;
                Ok(Async::new_nonblocking(fd))
            }
            Self::Unix(prefix) => listen_unix(&suffixed(prefix, ".listen_8443")),
        }
    }

    /// Accepts one caller. A vsock caller that is not the host is hung up on before it costs a
    /// handshake: any local user could come through vsock's loopback.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn accept(&self, listener: &Socket) -> io::Result<Socket> {
        let fair = Fair::default();
        loop {
            fair.one_more().await;
            let socket = accept(listener).await?;
            match self {
                Self::Unix(_) => return Ok(socket),
                Self::Vsock => match sys::vsock_peer(socket.get_ref()) {
                    Some(peer) if peer.cid <= CID_HOST && peer.cid != 1 => return Ok(socket),
                    Some(_) | None => drop(socket),
                },
            }
        }
    }

    /// Connects to the host once; the caller sets the deadline.
    ///
    /// # Errors
    /// The system's; a port where nobody listens is `ConnectionReset` or `ConnectionRefused`.
    pub(crate) async fn dial(&self, address: Address) -> io::Result<Socket> {
        let (socket, started) = match self {
            Self::Vsock => {
                let fd = stream(AddressFamily::VSOCK)?;
                let started = connect(&fd, &VsockAddr { cid: address.cid, port: address.port });
                (Async::new_nonblocking(fd), started)
            }
            Self::Unix(prefix) => {
                let fd = stream(AddressFamily::UNIX)?;
                let path = suffixed(prefix, &format!("_{}", address.port));
                let started = connect(&fd, &SocketAddrUnix::new(&path)?);
                (Async::new_nonblocking(fd), started)
            }
        };
        finish(socket, started).await
    }
}

/// Connects to a TCP port once; the caller sets the deadline.
///
/// # Errors
/// The system's.
pub(crate) async fn dial_tcp(address: SocketAddr) -> io::Result<Socket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = stream(family)?;
    let started = connect(&fd, &address);
    finish(Async::new_nonblocking(fd), started).await
}

/// Waits for a connection that was begun.
async fn finish(socket: Socket, started: rustix::io::Result<()>) -> io::Result<Socket> {
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

/// Whether vsock can be used at all: opens and binds a socket, and asks for our context id.
///
/// # Errors
/// What is missing, in words.
pub(crate) fn probe_vsock(root: &Path) -> Result<u32, String> {
    let fd = stream(AddressFamily::VSOCK).map_err(|error| format!("no vsock sockets: {error}"))?;
    bind(&fd, &VsockAddr { cid: CID_ANY, port: u32::MAX })
        .map_err(|error| format!("cannot bind a vsock: {error}"))?;
    local_cid(root)
}

/// Our own context id.
///
/// # Errors
/// What is missing, in words.
pub(crate) fn local_cid(root: &Path) -> Result<u32, String> {
    let device = std::fs::File::open(root.join("dev/vsock"))
        .map_err(|error| format!("/dev/vsock: {error}"))?;
    match sys::vsock_local_cid(&device) {
        Ok(u32::MAX) => Err("no vsock transport yet".into()),
        Ok(cid) => Ok(cid),
        Err(error) => Err(format!("/dev/vsock: {error}")),
    }
}

/// Listens on a unix socket, for its owner alone (0600), in the place of what bears the name. The
/// name is given last, to a socket that listens: whoever finds it can connect, where a name that
/// comes with `bind` is refused until `listen`, and one removed first is missing for a while.
///
/// # Errors
/// The system's.
pub(crate) fn listen_unix(path: &Path) -> io::Result<Socket> {
    let unnamed = suffixed(path, ".new");
    match std::fs::remove_file(&unnamed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let fd = stream(AddressFamily::UNIX)?;
    // The umask is 077: nobody else can connect, not even before the mode is set.
    bind(&fd, &SocketAddrUnix::new(&unnamed)?)?;
    std::fs::set_permissions(&unnamed, PermissionsExt::from_mode(0o600))?;
    listen(&fd, BACKLOG)?;
    std::fs::rename(&unnamed, path)?;
    Ok(Async::new_nonblocking(fd))
}

/// Accepts one connection.
///
/// # Errors
/// The system's.
pub(crate) async fn accept(listener: &Socket) -> io::Result<Socket> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = listener.read_with(|fd| Ok(accept_with(fd, flags)?)).await?;
    Ok(Async::new_nonblocking(fd))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::block_on;
    use futures_lite::FutureExt;
    use std::io::Read;
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn whoever_finds_a_socket_can_connect_to_it() {
        let scratch = crate::share::scratch("socket");
        let path = scratch.join("sock");
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let client = threads.spawn(|| {
                let mut found = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    match UnixStream::connect(&path) {
                        Ok(_) => found += 1,
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
                    }
                }
                found
            });
            // One in the place of another, and one where there is none.
            for turn in 0..2_000 {
                let first = listen_unix(&path).expect("a socket");
                let second = listen_unix(&path).expect("a socket in its place");
                if turn % 2 == 0 {
                    std::thread::yield_now();
                }
                std::fs::remove_file(&path).expect("a name to remove");
                drop((first, second));
            }
            done.store(true, Ordering::Relaxed);
            assert!(client.join().expect("a client never refused") > 0);
        });
    }

    #[test]
    fn a_socket_takes_the_place_of_a_stale_one_and_leaves_nothing_else() {
        let scratch = crate::share::scratch("stale-socket");
        let path = scratch.join("sock");
        drop(std::os::unix::net::UnixListener::bind(suffixed(&path, ".new")).expect("a stale one"));
        std::fs::write(&path, "a file").expect("a file in its place");
        let _listener = listen_unix(&path).expect("a socket");
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
    fn strangers_who_call_without_end_do_not_keep_others_from_running() {
        let scratch = crate::share::scratch("strangers");
        let path = scratch.join("sock");
        let listener = listen_unix(&path).expect("a socket");
        // No vsock at all, so no host.
        let strangers = [(); 40].map(|()| UnixStream::connect(&path).expect("a connection"));
        let mut last = strangers.last().expect("one of them");
        last.set_nonblocking(true).expect("a socket");
        let executor = async_executor::LocalExecutor::new();
        let other = executor.spawn(async move { last.read(&mut [0]).map_err(|why| why.kind()) });
        let seen = block_on(&executor, async {
            let never = async { Err(Transport::Vsock.accept(&listener).await.expect("nobody")) };
            never.or(async { Ok(other.await) }).await.ok()
        });
        assert_eq!(seen, Some(Err(io::ErrorKind::WouldBlock)), "all were hung up on before");
    }
}
