//! Reads and writes on sockets, in packets that every peer accepts.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Most bytes in one write to the host's socket: vsock sends it as one packet. Since 6.7 the guest's
/// kernel splits a packet over 32 KiB into several buffers. Host devices in user space that expect one
/// buffer (vhost-device-vsock 0.3.0, older ones of cloud-hypervisor and libkrun) then lose bytes or
/// stop; the kernel's own vhost-vsock does not.
const PACKET: usize = 32 * 1024;
/// Most TLS records in one write. More are ready only if many short frames wait for the peer.
const PIECES: usize = 16;

pub(crate) fn receive(fd: &OwnedFd, out: &mut [u8]) -> io::Result<usize> {
    Ok(recv(fd, out, RecvFlags::empty())?.0)
}

pub(crate) fn transmit(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(send(fd, bytes, SendFlags::NOSIGNAL)?)
}

/// The socket as rustls uses it: all that is sent to the host passes here.
pub(crate) struct Wire<'f>(pub(crate) &'f OwnedFd);

impl Read for Wire<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        receive(self.0, out)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    /// Writes several records in one call, at most [`PACKET`] bytes.
    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let (mut packet, mut room) = ([io::IoSlice::new(&[]); PIECES], PACKET);
        for (slot, piece) in packet.iter_mut().zip(pieces) {
            let taken = piece.get(..room).unwrap_or(piece);
            *slot = io::IoSlice::new(taken);
            room -= taken.len();
        }
        // SIGPIPE is ignored, as in every Rust program.
        let used = packet.get(..pieces.len()).unwrap_or(&packet);
        Ok(rustix::io::writev(self.0, used)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// The packets that a device gets: each write is one, as with vsock.
    fn packets(pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("two sockets");
        let whole = pieces.concat();
        let (mut seen, mut sent) = (Vec::new(), 0);
        while sent < whole.len() {
            let (mut skip, mut left) = (sent, Vec::new());
            for piece in pieces {
                let gone = skip.min(piece.len());
                skip -= gone;
                left.push(io::IoSlice::new(&piece[gone..]));
            }
            left.retain(|piece| !piece.is_empty());
            let written = Wire(&ours).write_vectored(&left).expect("a write");
            let mut packet = vec![0; 256 * 1024];
            let length = receive(&theirs, &mut packet).expect("a packet");
            packet.truncate(length);
            assert_eq!(packet.len(), written);
            seen.push(packet);
            sent += written;
        }
        assert!(seen.concat() == whole, "bytes were lost, doubled or moved");
        seen
    }

    fn sizes(pieces: &[usize]) -> Vec<usize> {
        let mut next = 0_u8;
        let mut fill = |length: usize| {
            let byte = || {
                next = next.wrapping_mul(5).wrapping_add(77);
                next
            };
            std::iter::repeat_with(byte).take(length).collect()
        };
        let pieces: Vec<_> = pieces.iter().map(|&length| fill(length)).collect();
        packets(&pieces).iter().map(Vec::len).collect()
    }

    #[test]
    fn no_packet_is_longer_than_every_device_takes() {
        const RECORD: usize = 16 * 1024 + 22;
        let one_short = PACKET - 1;
        assert_eq!(sizes(&[RECORD]), [RECORD]);
        assert_eq!(sizes(&[one_short]), [one_short]);
        assert_eq!(sizes(&[PACKET]), [PACKET]);
        assert_eq!(sizes(&[PACKET + 1]), [PACKET, 1]);
        assert_eq!(sizes(&[RECORD; 4]), [PACKET, PACKET, 4 * RECORD - 2 * PACKET]);
        assert_eq!(sizes(&[one_short, 1, 1]), [PACKET, 1]);
        assert_eq!(sizes(&[100; 40]), [PIECES * 100, PIECES * 100, 8 * 100]);
    }

    #[test]
    fn a_plain_write_to_the_host_is_at_most_one_packet() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, _theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("two sockets");
        assert_eq!(Wire(&ours).write(&[1; 100_000]).expect("a write"), PACKET);
    }
}
