//! Device events of the kernel (`NETLINK_KOBJECT_UEVENT`), with or without udev.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, recvfrom, socket_with,
};

/// Multicast group for the kernel's own events; udev's is 2.
const KERNEL: u32 = 1;
/// Size of the receive buffer, in bytes; longer events are truncated. A NIC's event contains its
/// path through all buses twice before the NIC's data.
pub(crate) const EVENT: usize = 512;

/// Size of the socket buffer, in bytes; the kernel doubles it: `udevadm trigger` creates a thousand
/// events of 1 KiB at once, and the default holds about two hundred.
const WAITING: usize = 1024 * 1024;

pub(crate) type Events = OwnedFd;

/// What ended a [`pause`].
pub(crate) enum Woken {
    Signal,
    /// A device was added, removed or changed.
    Event,
    /// The time limit passed.
    Late,
}

/// Opens a non-blocking socket for the events.
pub(crate) fn listen() -> io::Result<Events> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
    // Fails for users other than root, who keep the default.
    set_socket_recv_buffer_size_force(&socket, WAITING).ok();
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL))?;
    Ok(socket)
}

/// Returns the beginning of the next event, or nothing if the kernel did not send it.
/// Errors: `WouldBlock` if there is none; `ENOBUFS` if some were lost; any error of recvfrom(2).
pub(crate) fn next(socket: impl AsFd, buffer: &mut [u8; EVENT]) -> io::Result<&[u8]> {
    let flags = RecvFlags::DONTWAIT;
    let (length, _, sender) = recvfrom(socket, &mut buffer[..], flags)?;
    let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
    let is_kernels = sender.is_some_and(|sender| sender.pid() == 0);
    let length = if is_kernels { length } else { 0 };
    Ok(buffer.get(..length).unwrap_or_default())
}

/// Waits for a signal or an event, at most `limit`. Blocks the thread.
pub(crate) fn pause(
    signals: &impl AsFd,
    events: Option<&Events>,
    limit: Duration,
) -> io::Result<Woken> {
    let limit = Timespec::try_from(limit).unwrap_or_default();
    let signals = signals.as_fd();
    let mut ready = [
        PollFd::from_borrowed_fd(signals, PollFlags::IN),
        PollFd::from_borrowed_fd(events.map_or(signals, AsFd::as_fd), PollFlags::IN),
    ];
    let count = poll(&mut ready, Some(&limit))?;
    let [signal, _] = &ready;
    Ok(if !signal.revents().is_empty() {
        Woken::Signal
    } else if count > 0 {
        Woken::Event
    } else {
        Woken::Late
    })
}

pub(crate) fn drain(socket: impl AsFd) {
    // ENOBUFS ends the loop, too: pending events wake the next poll.
    while recv(&socket, &mut [0; EVENT], RecvFlags::DONTWAIT).is_ok() {}
}
