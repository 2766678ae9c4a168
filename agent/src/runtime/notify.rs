//! Messages to the service manager (sd_notify(3)). Without `NOTIFY_SOCKET`, does nothing.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

use crate::runtime::log;

pub(crate) fn stopping() {
    send("STOPPING=1");
}

pub(crate) fn watchdog() {
    send("WATCHDOG=1");
}

/// Returns the longest interval between two pings, if the service manager expects them.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").filter(|micros| *micros > 0).map(Duration::from_micros)
}

/// Sends the service manager a message.
pub(crate) fn send(fact: &str) {
    let sent = match KEPT.get() {
        Some(socket) => socket.send(fact.as_bytes()),
        None => match connected() {
            Some(socket) => socket.and_then(|socket| socket.send(fact.as_bytes())),
            None => return,
        },
    };
    if let Err(error) = sent {
        log::warn(format_args!("cannot notify the service manager: {error}"));
    }
}

/// Socket of a sandboxed agent, which cannot create another one.
static KEPT: OnceLock<UnixDatagram> = OnceLock::new();

/// Opens a socket for all further messages.
pub(crate) fn keep() {
    if let Some(Ok(socket)) = connected() {
        let _only_once = KEPT.set(socket);
    }
}

fn connected() -> Option<io::Result<UnixDatagram>> {
    let path = std::env::var_os("NOTIFY_SOCKET")?;
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    Some(address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect_addr(&address)?;
        Ok(socket)
    }))
}
