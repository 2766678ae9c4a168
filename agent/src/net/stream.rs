//! A byte stream, plain or under TLS. One type, so that the code above is compiled once.
//!
//! Two futures of the one thread may use both directions at once: every method takes `&self`, and
//! no borrow of the TLS state is held while waiting.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use mote_core::http::admission::Patience;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{Shutdown, shutdown};
use rustls::ServerConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use smol::future::{FutureExt, pending};

use crate::net::session::{Session, receive, transmit};
use crate::net::tls_error::invalid;
use crate::runtime::{Fair, Permit, now, sleep, until, within};
use crate::sys::unread;
use crate::transport::Socket;

/// How long a write may make no progress before the peer counts as disconnected.
const STALLED: Duration = Duration::from_secs(10);
/// How long [`Stream::close`] waits for the peer to close: a vsock that is closed immediately may
/// discard undelivered data.
const LINGER: Duration = Duration::from_secs(2);
/// Like `LINGER`, for a guest client. A unix socket keeps the answer, but a client that is refused
/// and continues to send its body would get an error instead. It is short, because other clients
/// may need the connection.
const BODY: Duration = Duration::from_millis(50);

/// First and longest interval at which to check whether a peer has read all data: no event says so.
const UNREAD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Waits until the slot is needed; forever if there is none.
async fn needed(slot: Option<&Permit>) {
    match slot {
        Some(slot) => slot.needed().await,
        None => pending().await,
    }
}

/// Boxed, because a session has over a kilobyte and streams are moved.
type Tls = Box<RefCell<Session>>;

fn boxed(tls: impl Into<Session>) -> Tls {
    Box::new(RefCell::new(tls.into()))
}

/// A client's TLS state before the socket is connected.
pub(crate) struct Begun(Tls);

impl From<UnbufferedClientConnection> for Begun {
    fn from(tls: UnbufferedClientConnection) -> Self {
        Self(boxed(tls))
    }
}

pub(crate) struct Stream {
    socket: Socket,
    tls: Option<Tls>,
    /// Bytes that [`Stream::read`] returns first.
    unread: RefCell<Vec<u8>>,
    /// The peer has closed its side, and all its data was read.
    ended: Cell<bool>,
    /// How long a write may make no progress; `None`: no limit.
    timeout: Cell<Option<Duration>>,
    fair: Fair,
}

impl Stream {
    fn new(socket: Socket, tls: Option<Tls>) -> Self {
        let timeout = Cell::new(Some(STALLED));
        let (unread, ended) = (RefCell::default(), Cell::default());
        Self { socket, tls, unread, ended, timeout, fair: Fair::default() }
    }

    pub(crate) fn plain(socket: Socket) -> Self {
        Self::new(socket, None)
    }

    /// Answers a TLS handshake. The caller sets the deadline. Errors: any error of the socket,
    /// `UnexpectedEof` if the peer closes, `InvalidData` with a `TlsError`, or `TimedOut` if the
    /// peer is slow and its slot is needed.
    pub(crate) async fn accept(
        socket: Socket,
        config: Arc<ServerConfig>,
        slot: &Permit,
    ) -> io::Result<Self> {
        let connection = UnbufferedServerConnection::new(config).map_err(invalid)?;
        Self::new(socket, Some(boxed(connection))).handshake(Some(slot)).await
    }

    /// Makes a TLS handshake. The caller must write first, which also sends the client's Finished,
    /// and sets the deadline. Errors: any error of the socket, `UnexpectedEof` if the peer closes,
    /// or `InvalidData` with a `TlsError`.
    pub(crate) async fn connect(socket: Socket, begun: Begun) -> io::Result<Self> {
        Self::new(socket, Some(begun.0)).handshake(None).await
    }

    async fn handshake(self, slot: Option<&Permit>) -> io::Result<Self> {
        match self.shake_hands(slot).await {
            Ok(()) => Ok(self),
            Err(error) => {
                // Dropping the socket could lose the alert, which gives the reason.
                if error.kind() == io::ErrorKind::InvalidData {
                    self.close().or(needed(slot)).await;
                }
                Err(error)
            }
        }
    }

    /// Sends the client's Finished with the first application data, which saves a packet.
    async fn shake_hands(&self, slot: Option<&Permit>) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let mut patience = Patience::new();
        loop {
            self.open(tls, &mut []).await?;
            if !tls.borrow().state().is_handshaking() {
                return Ok(());
            }
            if !tls.borrow().is_sent() {
                patience.answered();
            }
            let begun = now();
            let exchange = async {
                self.flush(tls).await?;
                self.receive(tls).await
            };
            let outlasted = async {
                until(slot.map(|_| patience.end(begun))).await;
                needed(slot).await;
                Err(io::ErrorKind::TimedOut.into())
            };
            if exchange.or(outlasted).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            patience.waited(now() - begun);
        }
    }

    /// Calls `look` with the certificates that the peer has proved to own; `None` if it has none.
    pub(crate) fn peer<T>(&self, look: impl FnOnce(Option<&[CertificateDer<'_>]>) -> T) -> T {
        match &self.tls {
            Some(tls) => look(tls.borrow().state().peer_certificates()),
            None => look(None),
        }
    }

    pub(crate) fn is_resumed(&self) -> bool {
        let kind = self.tls.as_ref().and_then(|tls| tls.borrow().state().handshake_kind());
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Puts bytes back, to be read first: bytes after the last request belong to the upgrade.
    pub(crate) fn unread(&self, bytes: &[u8]) {
        self.unread.borrow_mut().extend_from_slice(bytes);
    }

    /// Removes the write time limit: the peer may stop reading, as while a user reads a page.
    pub(crate) fn disable_write_timeout(&self) {
        self.timeout.set(None);
    }

    /// Limits how much unread output TLS and the socket may each buffer.
    pub(crate) fn limit_send_buffer(&self, bytes: usize) {
        // Ignore errors. A cgroup counts the kernel's buffers as the agent's memory.
        let _kept = set_socket_send_buffer_size(self.socket.get_ref(), bytes);
        if let Some(tls) = &self.tls {
            tls.borrow_mut().limit(bytes);
        }
    }

    /// Returns whether the peer has closed its side; its earlier data may still be unread.
    pub(crate) fn has_left(&self) -> bool {
        let mut look = [PollFd::new(self.socket.get_ref(), PollFlags::RDHUP)];
        matches!(poll(&mut look, Some(&Timespec::default())), Ok(1..))
    }

    /// Waits until the peer has closed both directions; a half-closed peer may wait for an answer.
    pub(crate) async fn gone(&self) {
        let _unwatched = self.socket.hung_up().await;
    }

    /// Reads some bytes; returns how many, 0 at the end. Errors: any error of the socket, or
    /// `InvalidData` if the peer violates TLS. Cancellation: no data is lost.
    pub(crate) async fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        self.fair.one_more().await;
        if let Some(count) = self.reread(out) {
            return Ok(count);
        }
        let Some(tls) = &self.tls else {
            let read = self.socket.read_with(|fd| receive(fd, &mut *out)).await;
            self.ended.set(matches!(read, Ok(0)));
            return read;
        };
        let mut has_received = false;
        loop {
            let was_sent = tls.borrow().is_sent();
            let count = self.open(tls, out).await?;
            // An end without close_notify is not an error: where lengths are known, HTTP notices an
            // incomplete message.
            if count > 0 || tls.borrow().has_ended() {
                return Ok(count);
            }
            // Records without data, such as tickets, may arrive faster than TLS processes them.
            // Unlike a yield, waiting lets the reactor look for other events each time.
            if std::mem::replace(&mut has_received, true) {
                sleep(Duration::ZERO).await;
            }
            // TLS may have queued a reply to what it received. An active writer sends that reply,
            // too; waiting here for the writer would stop reading.
            if was_sent {
                self.flush(tls).await?;
            }
            self.receive(tls).await?;
        }
    }

    fn reread(&self, out: &mut [u8]) -> Option<usize> {
        let mut unread = self.unread.borrow_mut();
        let count = unread.len().min(out.len());
        out.get_mut(..count)?.copy_from_slice(unread.get(..count)?);
        unread.drain(..count);
        (count > 0).then_some(count)
    }

    /// Writes all bytes. Under TLS, two concurrent writers do not mix if each writes less than 32
    /// KiB: the TLS state takes that whole.
    /// Errors: any error of the socket, or `TimedOut` if the peer accepts nothing for [`STALLED`].
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
            let taken = tls.borrow_mut().seal(bytes).map_err(invalid)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            self.flush(tls).await?;
        }
        Ok(())
    }

    /// Returns whether a peer on this machine has unread data.
    pub(crate) fn is_unread(&self) -> bool {
        self.tls.is_none() && unread(self.socket.get_ref()) > 0
    }

    /// Waits until a peer on this machine has read all data; returns false after [`STALLED`].
    pub(crate) async fn taken(&self) -> bool {
        let read = async {
            let mut pause = UNREAD.0;
            while self.is_unread() {
                sleep(pause).await;
                pause = UNREAD.1.min(2 * pause);
            }
        };
        within(STALLED, read).await.is_some()
    }

    /// Buffers all bytes and sends what the socket accepts immediately. Later writes or
    /// [`Stream::sent`] send the rest. Waits only while the TLS buffer (64 KiB) is full.
    /// Errors: as for [`Stream::write_all`].
    pub(crate) async fn write_ahead(&self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return self.write_all(bytes).await };
        self.fair.one_more().await;
        while !bytes.is_empty() {
            let taken = tls.borrow_mut().seal(bytes).map_err(invalid)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            if taken == 0 {
                self.send_some(tls).await?;
            }
        }
        match tls.borrow_mut().send(self.socket.get_ref()) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Waits until the socket has taken all buffered bytes. Errors: as for [`Stream::write_all`].
    pub(crate) async fn sent(&self) -> io::Result<()> {
        match &self.tls {
            Some(tls) => self.flush(tls).await,
            None => Ok(()),
        }
    }

    /// Sends close_notify, shuts down this side, and waits up to [`LINGER`] for the peer to close;
    /// without TLS up to [`BODY`], unless the peer has closed.
    pub(crate) async fn close(&self) {
        if let Some(tls) = &self.tls {
            tls.borrow_mut().close();
            if self.flush(tls).await.is_err() {
                return;
            }
        }
        if self.ended.get() || shutdown(self.socket.get_ref(), Shutdown::Write).is_err() {
            return;
        }
        let timeout = if self.tls.is_some() { LINGER } else { BODY };
        let drained = within(timeout, async {
            let mut scrap = [0; 256];
            while let Ok(1..) = self.socket.read_with(|fd| receive(fd, &mut scrap)).await {
                self.fair.one_more().await;
            }
        });
        if drained.await.is_none() {
            crate::runtime::log::debug(format_args!("a peer did not close its side"));
        }
    }

    async fn flush(&self, tls: &RefCell<Session>) -> io::Result<()> {
        while !tls.borrow().is_sent() {
            self.send_some(tls).await?;
        }
        tls.borrow_mut().release();
        Ok(())
    }

    async fn send_some(&self, tls: &RefCell<Session>) -> io::Result<usize> {
        self.progress(|fd| tls.borrow_mut().send(fd)).await
    }

    /// Decrypts what was received. If the peer violates TLS, sends it an alert.
    async fn open(&self, tls: &RefCell<Session>, out: &mut [u8]) -> io::Result<usize> {
        let opened = tls.borrow_mut().open(out);
        match opened {
            Ok(count) => Ok(count),
            Err(error) => {
                // Try once, without waiting for a peer that does not read.
                drop(tls.borrow_mut().send(self.socket.get_ref()));
                Err(invalid(error))
            }
        }
    }

    /// Receives some bytes for TLS; returns 0 at the end.
    async fn receive(&self, tls: &RefCell<Session>) -> io::Result<usize> {
        self.socket.read_with(|fd| tls.borrow_mut().receive(fd)).await
    }

    async fn progress(&self, op: impl FnMut(&OwnedFd) -> io::Result<usize>) -> io::Result<usize> {
        let write = self.socket.write_with(op);
        match self.timeout.get() {
            None => write.await,
            Some(limit) => match within(limit, write).await {
                Some(result) => result,
                None => Err(io::ErrorKind::TimedOut.into()),
            },
        }
    }
}
