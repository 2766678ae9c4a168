//! Messages to the service manager, as sd_notify(3) sends them; none without `NOTIFY_SOCKET`.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

use crate::runtime::log;

/// Reports that start-up is complete.
pub(crate) fn ready() {
    send("READY=1");
}

/// Reports start-up as complete, so that other units can start, and what the agent still waits for.
pub(crate) fn waiting(what: &str) {
    send(&format!("READY=1\nSTATUS=waiting for {what}"));
}

/// Reports the end of waiting.
pub(crate) fn running() {
    send("STATUS=running");
}

/// Reports that the agent ends.
pub(crate) fn stopping() {
    send("STOPPING=1");
}

/// Sends a watchdog ping.
pub(crate) fn watchdog() {
    send("WATCHDOG=1");
}

/// Longest interval between two pings, if the service manager expects them of this process.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").filter(|micros| *micros > 0).map(Duration::from_micros)
}

fn send(fact: &str) {
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

/// The socket of a sandboxed agent, which can create no more.
static KEPT: OnceLock<UnixDatagram> = OnceLock::new();

/// Opens a socket for all further messages.
pub(crate) fn keep() {
    if let Some(Ok(socket)) = connected() {
        let _only_once = KEPT.set(socket);
    }
}

/// Returns a socket to the service manager, if there is one.
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
