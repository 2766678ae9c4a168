//! A connection as bytes in and bytes out, plain or under TLS, behind one type so that everything
//! above is compiled once.
//!
//! Both directions may be used at the same time by two futures of the one thread: `&self`
//! everywhere, and no borrow of the TLS state is held while waiting.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::clock::within;
use crate::fair::Fair;
use crate::socket::Socket;

/// How long a write may make no progress before the peer counts as gone.
const STALLED: Duration = Duration::from_secs(10);
/// How long we wait for the peer's end after ours, so that a closing vsock does not throw away
/// what it has not delivered yet.
const LINGER: Duration = Duration::from_secs(2);

/// Not in the stream, which is moved about: this is more than a kilobyte.
type Tls = Box<RefCell<Connection>>;

fn boxed(tls: impl Into<Connection>) -> Tls {
    Box::new(RefCell::new(tls.into()))
}

/// Our half of a handshake, before there is a connection.
pub(crate) struct Begun(Tls);

impl From<ClientConnection> for Begun {
    fn from(tls: ClientConnection) -> Self {
        Self(boxed(tls))
    }
}

/// One connection.
pub(crate) struct Stream {
    socket: Socket,
    tls: Option<Tls>,
    /// What was read too far, to be read again.
    unread: RefCell<Vec<u8>>,
    /// How long a write may make no progress; for ever if none.
    patience: Cell<Option<Duration>>,
    fair: Fair,
}

impl Stream {
    fn new(socket: Socket, tls: Option<Tls>) -> Self {
        let patience = Cell::new(Some(STALLED));
        Self { socket, tls, unread: RefCell::default(), patience, fair: Fair::default() }
    }

    /// A connection without TLS.
    pub(crate) fn plain(socket: Socket) -> Self {
        Self::new(socket, None)
    }

    /// Answers a TLS handshake.
    ///
    /// # Errors
    /// The system's, or `InvalidData` with rustls's words. The caller sets the deadline.
    pub(crate) async fn accept(socket: Socket, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(invalid)?;
        Self::new(socket, Some(boxed(connection))).handshake().await
    }

    /// Makes a TLS handshake; the caller is the first to write.
    ///
    /// # Errors
    /// The system's, or `InvalidData` with rustls's words. The caller sets the deadline.
    pub(crate) async fn connect(socket: Socket, begun: Begun) -> io::Result<Self> {
        Self::new(socket, Some(begun.0)).handshake().await
    }

    async fn handshake(self) -> io::Result<Self> {
        match self.shake_hands().await {
            Ok(()) => Ok(self),
            Err(error) => {
                // Not dropped at once: the alert that says why would be lost with the socket.
                if error.kind() == io::ErrorKind::InvalidData {
                    self.close().await;
                }
                Err(error)
            }
        }
    }

    /// Our last words of it are left to go with the first bytes that are written: one packet less.
    async fn shake_hands(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        while tls.borrow().is_handshaking() {
            self.flush(tls).await?;
            if self.fill(tls, Reply::Later).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Runs `look` on the certificates that the peer proved to own.
    pub(crate) fn peer<T>(&self, look: impl FnOnce(Option<&[CertificateDer<'_>]>) -> T) -> T {
        match &self.tls {
            Some(tls) => look(tls.borrow().peer_certificates()),
            None => look(None),
        }
    }

    /// Whether a ticket saved us the signatures.
    pub(crate) fn is_resumed(&self) -> bool {
        let kind = self.tls.as_ref().and_then(|tls| tls.borrow().handshake_kind());
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Puts bytes back: they are read before any others. They belong to what the connection becomes
    /// next.
    pub(crate) fn unread(&self, bytes: &[u8]) {
        self.unread.borrow_mut().extend_from_slice(bytes);
    }

    /// From here on a peer may take its time to read, say because a person looks at a page of it.
    pub(crate) fn be_patient(&self) {
        self.patience.set(None);
    }

    /// Whether the peer has closed its side, though what it sent before may still be to be read.
    pub(crate) fn has_left(&self) -> bool {
        self.shows(PollFlags::RDHUP)
    }

    /// Waits until the peer is gone altogether. One that has only said all it had to say may still wait
    /// for an answer.
    pub(crate) async fn gone(&self) {
        while !self.shows(PollFlags::HUP) && self.socket.readable().await.is_ok() {}
    }

    fn shows(&self, flags: PollFlags) -> bool {
        let mut look = [PollFd::new(self.socket.get_ref(), flags)];
        matches!(poll(&mut look, Some(&Timespec::default())), Ok(1..))
    }

    /// Reads some bytes; 0 is the end.
    ///
    /// # Errors
    /// The system's, or `InvalidData`.
    ///
    /// # Cancellation
    /// Loses nothing.
    pub(crate) async fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        self.fair.one_more().await;
        if let Some(count) = self.reread(out) {
            return Ok(count);
        }
        let Some(tls) = &self.tls else {
            return self.socket.read_with(|fd| receive(fd, out)).await;
        };
        loop {
            match tls.borrow_mut().reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A peer that dies without close_notify ends its HTTP message early anyway, and
                // that is noticed where lengths are known.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            self.fill(tls, Reply::AtOnce).await?;
        }
    }

    fn reread(&self, out: &mut [u8]) -> Option<usize> {
        let mut unread = self.unread.borrow_mut();
        let count = unread.len().min(out.len());
        out.get_mut(..count)?.copy_from_slice(unread.get(..count)?);
        unread.drain(..count);
        (count > 0).then_some(count)
    }

    /// Writes all of it. Under TLS, what two writers write at once is not mixed up if each piece is below
    /// 32 KiB: the TLS state takes that whole.
    ///
    /// # Errors
    /// The system's, or `TimedOut` if the peer takes nothing for [`STALLED`].
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        self.fair.one_more().await;
        let Some(tls) = &self.tls else {
            while !bytes.is_empty() {
                let sent = self.progress(|fd| transmit(fd, bytes)).await?;
                bytes = bytes.get(sent..).unwrap_or_default();
            }
            return Ok(());
        };
        while !bytes.is_empty() {
            let taken = tls.borrow_mut().writer().write(bytes)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            self.flush(tls).await?;
        }
        Ok(())
    }

    /// Takes all of it and sends what the peer takes at once. The rest goes while the caller gets more
    /// ready, or with [`Stream::sent`]; only when TLS has no more room (64 KiB) is the peer waited for.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub(crate) async fn write_ahead(&self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return self.write_all(bytes).await };
        self.fair.one_more().await;
        while !bytes.is_empty() {
            let taken = tls.borrow_mut().writer().write(bytes)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            if taken == 0 {
                self.send_some(tls).await?;
            }
        }
        match tls.borrow_mut().write_tls(&mut Wire(self.socket.get_ref())) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Waits until all that was taken is on its way.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub(crate) async fn sent(&self) -> io::Result<()> {
        match &self.tls {
            Some(tls) => self.flush(tls).await,
            None => Ok(()),
        }
    }

    /// Says that nothing more will come, then waits (bounded) for the peer to agree: a vsock that
    /// is closed at once may discard what it still holds.
    pub(crate) async fn close(&self) {
        if let Some(tls) = &self.tls {
            tls.borrow_mut().send_close_notify();
            if self.flush(tls).await.is_err() {
                return;
            }
        }
        if shutdown(self.socket.get_ref(), Shutdown::Write).is_err() {
            return;
        }
        let drained = within(LINGER, async {
            let mut scrap = [0; 256];
            while let Ok(1..) = self.socket.read_with(|fd| receive(fd, &mut scrap)).await {
                self.fair.one_more().await;
            }
        });
        if drained.await.is_none() {
            crate::log::debug(format_args!("a peer did not close its side"));
        }
    }

    /// Sends what TLS has ready.
    async fn flush(&self, tls: &RefCell<Connection>) -> io::Result<()> {
        while tls.borrow().wants_write() {
            self.send_some(tls).await?;
        }
        Ok(())
    }

    async fn send_some(&self, tls: &RefCell<Connection>) -> io::Result<usize> {
        self.progress(|fd| tls.borrow_mut().write_tls(&mut Wire(fd))).await
    }

    /// Receives some bytes for TLS; 0 is the end of the socket.
    async fn fill(&self, tls: &RefCell<Connection>, reply: Reply) -> io::Result<usize> {
        let read = self.socket.read_with(|fd| tls.borrow_mut().read_tls(&mut Wire(fd))).await?;
        let was_sending = tls.borrow().wants_write();
        let processed = tls.borrow_mut().process_new_packets().map(drop);
        if let Err(error) = processed {
            // The alert tells the peer why; if it cannot be sent, so be it.
            drop(self.flush(tls).await);
            return Err(invalid(error));
        }
        // Key updates and the like want an answer. A writer that is at it takes it along: to wait for
        // what others send would keep us from reading.
        if reply == Reply::AtOnce && !was_sending {
            self.flush(tls).await?;
        }
        Ok(read)
    }

    async fn progress(&self, op: impl FnMut(&OwnedFd) -> io::Result<usize>) -> io::Result<usize> {
        let write = self.socket.write_with(op);
        match self.patience.get() {
            None => write.await,
            Some(limit) => match within(limit, write).await {
                Some(result) => result,
                None => Err(io::ErrorKind::TimedOut.into()),
            },
        }
    }
}

/// When what TLS has to say to something it received is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reply {
    AtOnce,
    Later,
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

fn receive(fd: &OwnedFd, out: &mut [u8]) -> io::Result<usize> {
    Ok(recv(fd, out, RecvFlags::empty())?.0)
}

fn transmit(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(send(fd, bytes, SendFlags::NOSIGNAL)?)
}

/// A descriptor as rustls wants to see it.
struct Wire<'f>(&'f OwnedFd);

impl Read for Wire<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        receive(self.0, out)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        transmit(self.0, bytes)
    }

    /// Several records in one call.
    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        // SIGPIPE is ignored, as in every Rust program.
        Ok(rustix::io::writev(self.0, pieces)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
