//! A listening socket that outlives its agent, so that no caller is refused during a takeover: it
//! is kept over exec(2), or taken from another process. Here a listener's name is its address.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

/// Descriptors to search: an agent listens before it serves, so the listener's number is low.
pub(crate) const NUMBERS: Range<RawFd> = 3..64;

/// Maximum size of an address: `struct sockaddr_storage`.
const MAX_ADDRESS: u32 = 128;

/// Returns the address as the kernel reports it.
pub(crate) fn name(address: &impl SocketAddrArg) -> Vec<u8> {
    // SAFETY: the closure reads `size` bytes from a pointer to that many.
    unsafe {
        address.with_sockaddr(|bytes, size| {
            std::slice::from_raw_parts(bytes.cast::<u8>(), size as usize).to_vec()
        })
    }
}

/// Returns the listener with this name that this process inherited or got by [`take`].
pub(crate) fn kept(name: &[u8]) -> Option<OwnedFd> {
    let number = find(name)?;
    mark(number, FdFlags::CLOEXEC);
    // SAFETY: it has no owner: it was open before main, or `take` left it open.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Sets the flags of the listener with this name, and so whether it survives exec(2).
pub(crate) fn keep(name: &[u8], flags: FdFlags) {
    if let Some(number) = find(name) {
        mark(number, flags);
    }
}

/// Copies a descriptor of another process if it is the listener with this name; returns whether it
/// is. Does nothing without the permission.
pub(crate) fn take(process: &impl AsFd, socket: RawFd, name: &[u8]) -> bool {
    let copy = pidfd_getfd(process, socket, PidfdGetfdFlags::empty());
    let copy = copy.ok().filter(|copy| listens(copy.as_raw_fd(), name));
    // The copy stays open for `kept`.
    copy.map(IntoRawFd::into_raw_fd).is_some()
}

fn mark(number: RawFd, flags: FdFlags) {
    // SAFETY: the caller has just found it open, and no other thread closes it.
    let _open = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, flags);
}

/// Finds the listener with this name. One poll(2) finds the open descriptors; getsockname(2) for
/// each took 61 calls.
fn find(name: &[u8]) -> Option<RawFd> {
    let look = |fd| libc::pollfd { fd, events: 0, revents: 0 };
    let mut looks: Vec<_> = NUMBERS.map(look).collect();
    // SAFETY: `looks` is writable and has that length.
    unsafe { libc::poll(looks.as_mut_ptr(), looks.len() as libc::nfds_t, 0) };
    let open = |look: &libc::pollfd| look.revents & libc::POLLNVAL == 0;
    let mut numbers = looks.iter().filter(|look| open(look)).map(|look| look.fd);
    numbers.find(|number| listens(*number, name))
}

/// Returns whether the descriptor is a socket that listens under this name.
fn listens(number: RawFd, name: &[u8]) -> bool {
    let mut bytes = [0_u8; MAX_ADDRESS as usize];
    let mut length = MAX_ADDRESS;
    // SAFETY: `bytes` is writable for `length`; a number without a socket is an error.
    let named = unsafe { libc::getsockname(number, bytes.as_mut_ptr().cast(), &raw mut length) };
    if named != 0 || !bytes.starts_with(name) {
        return false;
    }
    // SAFETY: it was open a moment ago, and no other thread closes it.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    // An accepted connection may have the same address.
    socket_acceptconn(socket) == Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustix::net::SocketAddrUnix;

    use super::*;

    #[test]
    fn finds_a_listener_by_name_but_not_its_connections() {
        let scratch = crate::runtime::scratch("handed-on");
        let (ours, other) = (scratch.join("ours"), scratch.join("ours.other"));
        let name = name(&SocketAddrUnix::new(&ours).expect("a name"));
        let listener = UnixListener::bind(&ours).expect("a listener");
        let other = UnixListener::bind(&other).expect("a listener");
        let _caller = UnixStream::connect(&ours).expect("a call");
        let (served, _) = listener.accept().expect("a caller");
        assert!(listens(listener.as_raw_fd(), &name));
        for number in [other.as_raw_fd(), served.as_raw_fd(), 1, 1_000_000] {
            assert!(!listens(number, &name), "{number}");
        }
    }
}
