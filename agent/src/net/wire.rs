//! Reads and writes on sockets, in packets that every peer accepts.

use std::io;
use std::os::fd::OwnedFd;

use rustix::buffer::Buffer;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Limit of one write to the host, bytes: vsock sends it as one packet. Since 6.7 the guest's
/// kernel splits a packet over 32 KiB into several buffers. Host devices in user space that expect
/// one buffer (vhost-device-vsock 0.3.0, older ones of cloud-hypervisor and libkrun) then lose
/// bytes or stop; the kernel's vhost-vsock does not.
const PACKET: usize = 32 * 1024;

pub(crate) fn receive(fd: &OwnedFd, out: impl Buffer<u8>) -> io::Result<usize> {
    Ok(recv(fd, out, RecvFlags::empty())?.1)
}

pub(crate) fn transmit(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(send(fd, bytes, SendFlags::NOSIGNAL)?)
}

/// Sends one packet of `bytes` to the host; returns its length.
pub(crate) fn transmit_packet(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    transmit(fd, bytes.get(..PACKET).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn packets_have_at_most_32_kib() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("two sockets");
        for length in [1, PACKET - 1, PACKET, PACKET + 1, 3 * PACKET] {
            let sent = transmit_packet(&ours, &vec![1; length]).expect("a write");
            let mut packet = vec![0; 4 * PACKET];
            let received = receive(&theirs, &mut packet).expect("a packet");
            assert_eq!((sent, received), (length.min(PACKET), length.min(PACKET)));
        }
    }
}
