//! sd_notify(3) by hand: one datagram a fact, nothing when nobody asked for it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::log;

/// Start-up is done.
pub(crate) fn ready() {
    send("READY=1");
}

/// We are leaving.
pub(crate) fn stopping() {
    send("STOPPING=1");
}

/// We live.
pub(crate) fn watchdog() {
    send("WATCHDOG=1");
}

/// How often we must say so, if we must.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").filter(|micros| *micros > 0).map(Duration::from_micros)
}

fn send(fact: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(fact.as_bytes(), &address)
    });
    if let Err(error) = sent {
        log::warn(format_args!("cannot notify the service manager: {error}"));
    }
}
