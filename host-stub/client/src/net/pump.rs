//! Turns a TLS connection into a plain socket that two threads may read and write at the same time.
//! rustls needs a single owner, which is a thread here.
//!
//! It buffers at most a record or two per direction, so a side that does not read stops the peer.
//! The end of one direction is passed on as a close_notify or as an end of file; the other
//! direction continues (P§4.4).

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustls::{ClientConnection, StreamOwned};

use super::stream::Timed;

/// Bytes per read: a TLS record.
const PIECE: usize = 16 * 1024;
/// Limit for the last bytes if the local side is gone.
const LAST: Duration = Duration::from_secs(5);

/// Returns the plain socket. The thread ends with the connection.
pub fn plain(stream: StreamOwned<ClientConnection, Timed>) -> Result<UnixStream> {
    let (tls, socket) = stream.into_parts();
    let socket = socket.into_inner();
    let (ours, theirs) = UnixStream::pair().context("socketpair")?;
    socket.set_nonblocking(true)?;
    ours.set_nonblocking(true)?;
    let mut pump =
        Pump { tls, socket, ours, incoming: Vec::new(), peer: Side::Open, us: Side::Open };
    std::thread::spawn(move || {
        // An error ends the connection; the reader sees that data is missing.
        let _cut = pump.run();
    });
    Ok(theirs)
}

/// The state of one side's sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// More may follow.
    Open,
    /// It has sent its end and still reads.
    Ended,
    Gone,
}

struct Pump {
    tls: ClientConnection,
    socket: UnixStream,
    ours: UnixStream,
    /// Decrypted but not yet delivered.
    incoming: Vec<u8>,
    peer: Side,
    us: Side,
}

impl Pump {
    fn run(&mut self) -> std::io::Result<()> {
        loop {
            self.take_plaintext()?;
            while !self.incoming.is_empty() && self.give() {
                self.take_plaintext()?;
            }
            let is_over = match (self.peer, self.us) {
                (_, Side::Gone) => !self.tls.wants_write(),
                (Side::Ended | Side::Gone, _) => self.incoming.is_empty(),
                (Side::Open, Side::Open | Side::Ended) => false,
            };
            if is_over {
                let _gone = self.ours.shutdown(Shutdown::Both);
                let _told = self.socket.shutdown(Shutdown::Write);
                return Ok(());
            }
            let (socket, ours) = self.poll()?;
            if socket.contains(PollFlags::OUT) {
                again(self.tls.write_tls(&mut self.socket))?;
            }
            if socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                && self.wants_records()
            {
                if again(self.tls.read_tls(&mut self.socket))? == Some(0) {
                    self.peer = Side::Gone;
                }
                self.tls.process_new_packets().map_err(std::io::Error::other)?;
            }
            if ours.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.send(ours)?;
            }
        }
    }

    /// Backpressure: nothing is read from the peer until its previous data is delivered.
    fn wants_records(&self) -> bool {
        self.incoming.is_empty() && self.peer == Side::Open
    }

    fn poll(&self) -> std::io::Result<(PollFlags, PollFlags)> {
        let (mut socket, mut ours) = (PollFlags::empty(), PollFlags::empty());
        socket.set(PollFlags::IN, self.wants_records());
        socket.set(PollFlags::OUT, self.tls.wants_write());
        ours.set(PollFlags::IN, self.us == Side::Open && !self.tls.wants_write());
        ours.set(PollFlags::OUT, !self.incoming.is_empty());
        // A hang-up is reported even if not asked for, so a side that waits for the other is not
        // polled.
        let mut fds = Vec::with_capacity(2);
        let watches = [(&self.socket, socket), (&self.ours, ours)];
        for (fd, flags) in watches.iter().filter(|(_, flags)| !flags.is_empty()) {
            fds.push(PollFd::new(*fd, *flags));
        }
        let limit = Timespec { tv_sec: i64::try_from(LAST.as_secs()).unwrap_or(0), tv_nsec: 0 };
        let limit = (self.us == Side::Gone).then_some(&limit);
        match poll(&mut fds, limit) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok((PollFlags::empty(), PollFlags::empty())),
            Err(error) => return Err(error.into()),
        }
        let mut found = fds.iter().map(PollFd::revents);
        let mut of = |flags: PollFlags| {
            if flags.is_empty() { flags } else { found.next().unwrap_or(flags) }
        };
        Ok((of(socket), of(ours)))
    }

    /// Takes decrypted bytes after the previous ones are delivered.
    fn take_plaintext(&mut self) -> std::io::Result<()> {
        if !self.incoming.is_empty() || self.peer == Side::Ended {
            return Ok(());
        }
        let mut piece = [0; PIECE];
        match self.tls.reader().read(&mut piece) {
            Ok(0) => self.peer = Side::Ended,
            Ok(count) => self.incoming.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // A peer that ends without close_notify.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.peer = Side::Gone,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Delivers decrypted bytes. Returns whether there was progress.
    fn give(&mut self) -> bool {
        match again(self.ours.write(&self.incoming)) {
            Ok(Some(count)) => drop(self.incoming.drain(..count)),
            Ok(None) => return false,
            // The local side is gone; data for the peer is still sent.
            Err(_) => {
                self.incoming.clear();
                self.leave();
            }
        }
        true
    }

    fn send(&mut self, found: PollFlags) -> std::io::Result<()> {
        let mut piece = [0; PIECE];
        match again(self.ours.read(&mut piece)) {
            Ok(Some(0)) if found.contains(PollFlags::HUP) => self.leave(),
            Ok(Some(0)) => {
                self.us = Side::Ended;
                self.tls.send_close_notify();
            }
            Ok(Some(count)) => self.tls.writer().write_all(&piece[..count])?,
            Ok(None) => {}
            Err(_) => self.leave(),
        }
        Ok(())
    }

    fn leave(&mut self) {
        if self.us == Side::Open {
            self.tls.send_close_notify();
        }
        self.us = Side::Gone;
    }
}

/// Treats `WouldBlock` as no progress.
fn again(result: std::io::Result<usize>) -> std::io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
