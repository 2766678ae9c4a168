//! The TLS session of one connection: rustls's state, and buffers for records.
//!
//! rustls's unbuffered API receives up to 36 KiB at a time and decrypts in place. Its buffered API
//! receives 4 KiB at a time, and zeroes and moves its buffer for each record.

use std::io;
use std::os::fd::OwnedFd;

use rustix::buffer::Buffer;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CommonState, Error};

use crate::sys::heap;

/// Read size while the peer sends little, in bytes.
const SHORT: usize = 4 * 1024;
/// Read size while the peer sends much, in bytes: two records, in a block that the heap caches
/// (`sys/heap`).
const LONG: usize = 36 * 1024;
/// Maximum number of received unprocessed bytes: rustls's limit for a handshake message.
const LONGEST: usize = 64 * 1024;
/// Maximum number of received unprocessed bytes during the handshake. The longest accepted
/// certificate is half as long.
const UNKNOWN: usize = 16 * 1024;
/// Default maximum of encrypted unsent bytes, as in rustls.
const UNSENT: usize = 64 * 1024;
/// Maximum content of a record, in bytes.
const RECORD: usize = 16 * 1024;
/// What encryption adds to a record, in bytes: header, type and tag.
const SEAL: usize = 5 + 1 + 16;

pub(super) struct Session {
    side: Side,
    /// Received records; the first `processed` bytes are no longer needed.
    incoming: Vec<u8>,
    processed: usize,
    /// Next read size: [`SHORT`] or [`LONG`].
    room: usize,
    /// Plaintext, unread from index `read` on.
    opened: Vec<u8>,
    read: usize,
    outgoing: Outgoing,
    /// Maximum number of encrypted unsent bytes.
    limit: usize,
    peer: Peer,
}

#[derive(Clone, Copy, PartialEq)]
enum Peer {
    Sends,
    /// The peer has closed its side.
    Ended,
    /// The peer has violated TLS.
    Failed,
}

/// A buffer whose first `sealed` bytes are encrypted and unsent.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sealed: usize,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// What to encrypt once the handshake allows it.
#[derive(Clone, Copy)]
enum Seal<'b> {
    Nothing,
    Bytes(&'b [u8]),
    CloseNotify,
}

enum Step {
    Next,
    PeerClosed,
    /// The session waits for the peer, and has encrypted what was to be sent.
    Idle,
    /// The session waits for the peer, and cannot send application data.
    Blocked,
}

impl From<UnbufferedClientConnection> for Session {
    fn from(client: UnbufferedClientConnection) -> Self {
        Self::new(Side::Client(client))
    }
}

impl From<UnbufferedServerConnection> for Session {
    fn from(server: UnbufferedServerConnection) -> Self {
        Self::new(Side::Server(server))
    }
}

impl Session {
    fn new(side: Side) -> Self {
        Self {
            side,
            incoming: Vec::new(),
            processed: 0,
            room: SHORT,
            opened: Vec::new(),
            read: 0,
            outgoing: Outgoing::default(),
            limit: UNSENT,
            peer: Peer::Sends,
        }
    }

    pub(super) fn state(&self) -> &CommonState {
        match &self.side {
            Side::Client(client) => client,
            Side::Server(server) => server,
        }
    }

    pub(super) fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    pub(super) fn is_sent(&self) -> bool {
        self.outgoing.sealed == 0
    }

    /// Returns whether the peer sends nothing more.
    pub(super) fn has_ended(&self) -> bool {
        self.peer != Peer::Sends
    }

    /// Processes received records and copies plaintext to `out`; returns how many bytes.
    /// Errors: the peer violates TLS. The alert for it is ready to send.
    pub(super) fn open(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let waiting = self.opened.get(self.read..).unwrap_or_default();
        let count = waiting.len().min(out.len());
        let (taken, mut room) = out.split_at_mut(count);
        taken.copy_from_slice(waiting.get(..count).unwrap_or_default());
        self.read += count;
        if self.read == self.opened.len() {
            (self.opened, self.read) = (Vec::new(), 0);
        }
        let free = room.len();
        if !self.incoming.is_empty() || self.state().is_handshaking() {
            self.run(Seal::Nothing, &mut room)?;
        }
        Ok(count + free - room.len())
    }

    /// Encrypts bytes up to the limit; returns how many. Errors: as for [`Session::open`].
    pub(super) fn seal(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let count = bytes.len().min(self.limit.saturating_sub(self.outgoing.sealed));
        let bytes = bytes.get(..count).unwrap_or_default();
        if count > 0 && !self.run(Seal::Bytes(bytes), &mut Default::default())? {
            return Err(Error::HandshakeNotComplete);
        }
        Ok(count)
    }

    /// Encrypts close_notify, if the handshake allows it.
    pub(super) fn close(&mut self) {
        // Ignore errors: after one, the alert is sent instead.
        drop(self.run(Seal::CloseNotify, &mut Default::default()));
    }

    /// Receives some bytes; returns 0 at the end.
    /// Errors: those of the socket, or `InvalidData` for a message that is too long.
    pub(super) fn receive(&mut self, from: &OwnedFd) -> io::Result<usize> {
        self.incoming.drain(..self.processed);
        self.processed = 0;
        let held = self.incoming.len();
        // During the handshake, the peer may be any program.
        let is_known = !self.state().is_handshaking();
        let (room, longest) = if is_known { (self.room, LONGEST) } else { (SHORT, UNKNOWN) };
        if held >= longest {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.incoming.reserve_exact(room.max(held + SHORT) - held);
        let received = receive(from, rustix::buffer::spare_capacity(&mut self.incoming));
        match received {
            Ok(count) => {
                if count == 0 && self.peer == Peer::Sends {
                    self.peer = Peer::Ended;
                }
                self.room = if count < SHORT { SHORT } else { LONG };
            }
            // The connection is idle, so free the buffer.
            Err(_) if held == 0 => self.incoming = Vec::new(),
            Err(_) => {}
        }
        received
    }

    /// Sends one packet of encrypted bytes; returns its length. Errors: those of the socket.
    pub(super) fn send(&mut self, to: &OwnedFd) -> io::Result<usize> {
        let Outgoing { bytes, sealed } = &mut self.outgoing;
        if *sealed == 0 {
            return Ok(0);
        }
        let count = transmit_packet(to, bytes.get(..*sealed).unwrap_or_default())?;
        bytes.copy_within(count..*sealed, 0);
        *sealed -= count;
        Ok(count)
    }

    /// Frees the send buffer if it is empty.
    pub(super) fn release(&mut self) {
        if self.is_sent() {
            self.outgoing = Outgoing::default();
        }
    }

    /// Processes all received records, fills `room` and then `opened` with plaintext, and encrypts.
    /// Returns false if the handshake does not yet allow that.
    fn run(&mut self, seal: Seal<'_>, room: &mut &mut [u8]) -> Result<bool, Error> {
        if self.peer == Peer::Failed {
            return Err(Error::HandshakeNotComplete);
        }
        loop {
            match self.step(seal, room) {
                Ok(Step::Next) => {}
                Ok(Step::PeerClosed) => self.peer = Peer::Ended,
                Ok(Step::Idle) => return Ok(true),
                Ok(Step::Blocked) => return Ok(false),
                Err(error) => {
                    // Encrypts the alert. rustls must see no record after that: it would read the
                    // invalid one again and add a second alert.
                    drop(self.step(Seal::Nothing, room));
                    (self.incoming, self.processed, self.peer) = (Vec::new(), 0, Peer::Failed);
                    return Err(error);
                }
            }
        }
    }

    fn step(&mut self, seal: Seal<'_>, room: &mut &mut [u8]) -> Result<Step, Error> {
        let incoming = self.incoming.get_mut(self.processed..).unwrap_or_default();
        let (opened, outgoing) = (&mut self.opened, &mut self.outgoing);
        let mut opened = |bytes: &[u8]| {
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            let (front, rest) = std::mem::take(room).split_at_mut(now.len());
            front.copy_from_slice(now);
            *room = rest;
            opened.extend_from_slice(later);
        };
        let (discard, step) = match &mut self.side {
            Side::Client(client) => {
                take(client.process_tls_records(incoming), &mut opened, outgoing, seal)
            }
            Side::Server(server) => {
                take(server.process_tls_records(incoming), &mut opened, outgoing, seal)
            }
        };
        self.processed += discard;
        if self.processed == self.incoming.len() {
            self.incoming.clear();
            self.processed = 0;
        }
        step
    }
}

/// Handles one of rustls's states. Returns how many received bytes are no longer needed.
fn take<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    opened: &mut dyn FnMut(&[u8]),
    outgoing: &mut Outgoing,
    seal: Seal<'_>,
) -> (usize, Result<Step, Error>) {
    let step = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                opened(record?.payload);
            }
            Ok(Step::Next)
        }
        ConnectionState::EncodeTlsData(mut message) => {
            outgoing.append(0, &mut |room| match message.encode(room) {
                Ok(length) => Ok(length),
                Err(EncodeError::InsufficientSize(short)) => Err(short.required_size),
                Err(EncodeError::AlreadyEncoded) => Err(0),
            })?;
            Ok(Step::Next)
        }
        ConnectionState::TransmitTlsData(sent) => {
            sent.done();
            Ok(Step::Next)
        }
        ConnectionState::WriteTraffic(mut traffic) => {
            let bytes = if let Seal::Bytes(bytes) = seal { bytes } else { &[] };
            let guess = bytes.len() + (bytes.len() / RECORD + 1) * SEAL;
            let sealed = outgoing.append(guess, &mut |room| {
                let sealed = match seal {
                    Seal::Nothing => Ok(0),
                    Seal::Bytes(bytes) => traffic.encrypt(bytes, room),
                    Seal::CloseNotify => traffic.queue_close_notify(room),
                };
                sealed.map_err(|why| match why {
                    EncryptError::InsufficientSize(short) => short.required_size,
                    EncryptError::EncryptExhausted => 0,
                })
            });
            sealed.map(|()| Step::Idle)
        }
        ConnectionState::PeerClosed => Ok(Step::PeerClosed),
        ConnectionState::BlockedHandshake | ConnectionState::Closed => Ok(Step::Blocked),
        // mote never offers early data.
        ConnectionState::ReadEarlyData(_) | _ => Err(Error::HandshakeNotComplete),
    });
    (status.discard, step)
}

impl Outgoing {
    /// Appends what `write` writes. If `write` needs more room, its error is how much.
    fn append(
        &mut self,
        mut room: usize,
        write: &mut dyn FnMut(&mut [u8]) -> Result<usize, usize>,
    ) -> Result<(), Error> {
        loop {
            let end = self.sealed + room;
            if self.bytes.len() < end {
                let mut longer = heap::zeros(end);
                if let (Some(to), Some(from)) =
                    (longer.get_mut(..self.sealed), self.bytes.get(..self.sealed))
                {
                    to.copy_from_slice(from);
                }
                self.bytes = longer;
            }
            match write(self.bytes.get_mut(self.sealed..).unwrap_or_default()) {
                Ok(length) => {
                    self.sealed += length;
                    return Ok(());
                }
                Err(needed) if needed > room => room = needed,
                Err(_) => return Err(Error::EncryptError),
            }
        }
    }
}

/// Maximum size of a write to the host, in bytes: vsock sends it as one packet. Since 6.7 the
/// guest's kernel splits a packet over 32 KiB into several buffers. Host devices in user space that
/// expect one buffer (vhost-device-vsock 0.3.0, older cloud-hypervisor and libkrun) then lose bytes
/// or stop; the kernel's vhost-vsock does not. The packet is half a kilobyte shorter, so that with
/// the kernel's own data it fits into 32 KiB; beyond that, the kernel would clear 64 KiB.
const PACKET: usize = 32 * 1024 - 512;

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
        assert_eq!(crate::net::relay::OUTWARD + 2 * SEAL, PACKET, "two records of the relay");
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
