//! Sends messages to the service manager (sd_notify(3)). Without `NOTIFY_SOCKET`, does nothing.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Result;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::runtime::log;
use crate::sys::variable;

pub(crate) fn stopping() {
    send("STOPPING=1");
}

pub(crate) fn watchdog() {
    send("WATCHDOG=1");
}

/// Returns the longest interval between two pings, if the service manager expects them.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
    if number(c"WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number(c"WATCHDOG_USEC").filter(|micros| *micros > 0).map(Duration::from_micros)
}

pub(crate) fn send(fact: &str) {
    let tell = |socket: &OwnedFd| net::send(socket, fact.as_bytes(), SendFlags::NOSIGNAL);
    let sent = match KEPT.get() {
        Some(socket) => tell(socket),
        None => match connected() {
            Some(socket) => socket.and_then(|socket| tell(&socket)),
            None => return,
        },
    };
    if let Err(error) = sent {
        log::warn(format_args!("cannot notify the service manager: {error}"));
    }
}

/// Socket of a sandboxed agent, which cannot create another one.
static KEPT: OnceLock<OwnedFd> = OnceLock::new();

/// Opens a socket for all further messages.
pub(crate) fn keep() {
    if let Some(Ok(socket)) = connected() {
        let _only_once = KEPT.set(socket);
    }
}

fn connected() -> Option<Result<OwnedFd>> {
    let path = variable(c"NOTIFY_SOCKET")?;
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(Path::new(&path)),
    };
    Some(address.and_then(|address| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        net::connect(&socket, &address)?;
        Ok(socket)
    }))
}
