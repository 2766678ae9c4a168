//! What docs/explanation/security.md says that the process still can do.

use std::fs;
use std::os::unix::net::SocketAddr;

use nix::errno::Errno;
use nix::libc;

use crate::around::{Around, Way, has_scopes, ipv4, unix, vsock};
use crate::attempts::Argument::{Bytes, Number};
use crate::attempts::{close, make, number, open, path};
use crate::ptrace::Injected;
use crate::{Outcome, Report};

/// A port of the host's without a listener.
const PORT: u32 = 2;
/// Highest descriptor to inspect.
const DESCRIPTORS: i32 = 64;

pub(crate) fn try_all(
    injected: &Injected,
    around: &Around,
    report: &mut Report,
) -> Result<(), Errno> {
    call_host(injected, around, report)?;
    use_files(injected, around, report);
    send_datagrams(injected, around, report)
}

fn connect(injected: &Injected, socket: u64, address: Vec<u8>) -> Result<u64, Errno> {
    let length = Number(address.len() as u64);
    make(injected, libc::SYS_connect, &[Number(socket), Bytes(address), length])
}

/// Calls the host, and a TCP port if the guest's policy allows that.
fn call_host(injected: &Injected, around: &Around, report: &mut Report) -> Result<(), Errno> {
    let arguments = [around.family(), libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0].map(number);
    let socket = make(injected, libc::SYS_socket, &arguments)?;
    let said = match &around.way {
        Way::Unix(host) => {
            let host = SocketAddr::from_pathname(host).map_err(|_| Errno::EINVAL)?;
            connect(injected, socket, unix(&host))
        }
        // The connection is in progress.
        Way::Vsock => match connect(injected, socket, vsock(PORT)) {
            Err(Errno::EINPROGRESS | Errno::ECONNRESET) => Ok(0),
            said => said,
        },
    };
    report.compare("call the host", said, Outcome::Done);
    close(injected, socket);
    if around.forwards {
        report.compare("connect to a TCP port", reach_port(injected, around), Outcome::Done);
    }
    Ok(())
}

/// Reads what anyone may read, writes the status, and removes devlxd's name, which it restores.
fn use_files(injected: &Injected, around: &Around, report: &mut Report) {
    let in_root = |path: &str| around.root.join(path);
    let files = [
        ("/proc/stat".into(), libc::O_RDONLY),
        ("/proc/1/stat".into(), libc::O_RDONLY),
        (in_root("sys"), libc::O_RDONLY),
        (in_root("run/mote/ready"), libc::O_WRONLY),
        (in_root("run/mote/status"), libc::O_WRONLY),
    ];
    for (at, flags) in files {
        let said = open(injected, &at, flags);
        report.compare(&format!("open {}", at.display()), said, Outcome::Done);
        if let Ok(file) = said {
            // The first byte, unchanged.
            if flags == libc::O_WRONLY
                && let Some(first) = fs::read(&at).ok().and_then(|bytes| bytes.first().copied())
            {
                let arguments = [Number(file), Bytes(vec![first]), Number(1)];
                let said = make(injected, libc::SYS_write, &arguments);
                report.compare(&format!("write {}", at.display()), said, Outcome::Done);
            }
            close(injected, file);
        }
    }
    let (name, away) = (around.guests.join("sock"), around.guests.join("away"));
    for (from, to) in [(&name, &away), (&away, &name)] {
        let here = || number(libc::AT_FDCWD);
        let arguments = [here(), path(from), here(), path(to)];
        let said = make(injected, libc::SYS_renameat, &arguments);
        report.compare("rename devlxd's socket", said, Outcome::Done);
    }
}

/// Sends by the service manager's datagram socket: to sockets that anyone may write to, and no
/// others.
fn send_datagrams(injected: &Injected, around: &Around, report: &mut Report) -> Result<(), Errno> {
    let Some(socket) = datagrams(injected)? else { return Ok(()) };
    let outcomes = [Outcome::Done, Outcome::Denied, Outcome::Denied];
    let names = ["everybody's socket", "root's socket", "a socket with an abstract name"];
    for (((address, taken), outcome), name) in around.sockets.iter().zip(outcomes).zip(names) {
        if address.as_pathname().is_none() && !has_scopes() {
            continue;
        }
        report.compare(
            &format!("connect to {name}"),
            connect(injected, socket, unix(address)),
            outcome,
        );
        if outcome == Outcome::Done {
            let said =
                make(injected, libc::SYS_write, &[Number(socket), Bytes(vec![b'x']), Number(1)]);
            let arrived = said.and_then(|_| taken.recv(&mut [0; 2]).map_err(|_| Errno::EAGAIN));
            report.compare(
                &format!("send to {name}"),
                arrived.map(|length| length as u64),
                outcome,
            );
        }
    }
    Ok(())
}

/// Returns the first of the agent's descriptors that is a unix datagram socket.
fn datagrams(injected: &Injected) -> Result<Option<u64>, Errno> {
    let option = |descriptor: i32, name| {
        let arguments = [
            number(descriptor),
            number(libc::SOL_SOCKET),
            number(name),
            Bytes(vec![0; 4]),
            Bytes(4_u32.to_ne_bytes().to_vec()),
        ];
        make(injected, libc::SYS_getsockopt, &arguments).ok()?;
        let mut value = [0; 4];
        injected.read(0, &mut value).ok()?;
        Some(i32::from_ne_bytes(value))
    };
    let found = (0..DESCRIPTORS).find(|descriptor| {
        option(*descriptor, libc::SO_DOMAIN) == Some(libc::AF_UNIX)
            && option(*descriptor, libc::SO_TYPE) == Some(libc::SOCK_DGRAM)
    });
    Ok(found.map(|descriptor| descriptor.unsigned_abs().into()))
}

fn reach_port(injected: &Injected, around: &Around) -> Result<u64, Errno> {
    let arguments = [libc::AF_INET, libc::SOCK_STREAM, 0].map(number);
    let socket = make(injected, libc::SYS_socket, &arguments)?;
    let port = around.tcp.local_addr().map_or(0, |address| address.port());
    let said = connect(injected, socket, ipv4(port));
    close(injected, socket);
    said
}
