//! A connection, plain or after a hello that simulates TLS.

use crate::net::tls::{self, Begun, OURS, fingerprint};
use crate::runtime::{Fair, Permit, sleep, within};
use crate::sim_prelude::*;
use crate::transport::Socket;

const STALLED: Duration = Duration::from_secs(10);
const LINGER: Duration = Duration::from_secs(2);
const BODY: Duration = Duration::from_millis(50);
/// Interval between checks whether a peer has read everything.
const UNREAD: Duration = Duration::from_millis(10);

pub(crate) struct Stream {
    socket: Socket,
    /// The peer's certificate, and whether a session was resumed, once a hello has arrived.
    tls: Option<(Certificate, bool)>,
    unread: RefCell<Vec<u8>>,
    ended: Cell<bool>,
    timeout: Cell<Option<Duration>>,
    fair: Fair,
}

fn broken(_: Broken) -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl Stream {
    fn new(socket: Socket, tls: Option<(Certificate, bool)>) -> Self {
        let timeout = Cell::new(Some(STALLED));
        let (unread, ended) = (RefCell::default(), Cell::default());
        Self { socket, tls, unread, ended, timeout, fair: Fair::default() }
    }

    pub(crate) fn plain(socket: Socket) -> Self {
        Self::new(socket, None)
    }

    pub(crate) async fn accept(
        socket: Socket,
        config: tls::Server,
        _: &Permit,
    ) -> io::Result<Self> {
        let theirs = Hello::receive(socket.stream()).await.map_err(broken)?;
        if theirs.certificate != config.caller {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let ours = Hello { certificate: OURS, ticket: 0 };
        ours.send(socket.stream()).await.map_err(broken)?;
        Ok(Self::new(socket, Some((theirs.certificate, false))))
    }

    pub(crate) async fn connect(socket: Socket, begun: Begun) -> io::Result<Self> {
        let ticket = begun.ticket.unwrap_or(0);
        let ours = Hello { certificate: OURS, ticket };
        ours.send(socket.stream()).await.map_err(broken)?;
        let theirs = Hello::receive(socket.stream()).await.map_err(broken)?;
        if begun.fingerprint != fingerprint(theirs.certificate) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if theirs.ticket != 0 {
            begun.store.put(theirs.ticket);
        }
        Ok(Self::new(socket, Some((theirs.certificate, ticket != 0))))
    }

    pub(crate) fn peer<T>(&self, look: impl FnOnce(Option<Certificate>) -> T) -> T {
        look(self.tls.map(|(certificate, _)| certificate))
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.is_some_and(|(_, is_resumed)| is_resumed)
    }

    pub(crate) fn unread(&self, bytes: &[u8]) {
        self.unread.borrow_mut().extend_from_slice(bytes);
    }

    pub(crate) fn disable_write_timeout(&self) {
        self.timeout.set(None);
    }

    pub(crate) fn limit_send_buffer(&self, bytes: usize) {
        self.socket.stream().limit(2 * bytes);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.socket.stream().has_left()
    }

    pub(crate) async fn gone(&self) {
        self.socket.stream().gone().await;
    }

    pub(crate) async fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        self.fair.one_more().await;
        let put_back = {
            let mut unread = self.unread.borrow_mut();
            let count = unread.len().min(out.len());
            out[..count].copy_from_slice(&unread[..count]);
            unread.drain(..count);
            count
        };
        if put_back > 0 {
            return Ok(put_back);
        }
        let read = self.socket.stream().read(out).await.map_err(broken);
        self.ended.set(matches!(read, Ok(0)));
        read
    }

    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        self.fair.one_more().await;
        while !bytes.is_empty() {
            let write = self.socket.stream().write(bytes);
            let count = match self.timeout.get() {
                None => write.await,
                Some(limit) => match within(limit, write).await {
                    Some(written) => written,
                    None => return Err(io::ErrorKind::TimedOut.into()),
                },
            };
            bytes = &bytes[count.map_err(broken)?..];
        }
        Ok(())
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.tls.is_none() && self.socket.stream().is_unread()
    }

    pub(crate) async fn taken(&self) -> bool {
        let read = async {
            while self.is_unread() {
                sleep(UNREAD).await;
            }
        };
        within(STALLED, read).await.is_some()
    }

    pub(crate) async fn write_ahead(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await
    }

    pub(crate) async fn sent(&self) -> io::Result<()> {
        Ok(())
    }

    pub(crate) async fn close(&self) {
        if self.ended.get() && self.tls.is_none() {
            return;
        }
        self.socket.stream().shutdown();
        let timeout = if self.tls.is_some() { LINGER } else { BODY };
        let drained = async {
            let mut scrap = [0; 256];
            while let Ok(1..) = self.socket.stream().read(&mut scrap).await {
                self.fair.one_more().await;
            }
        };
        within(timeout, drained).await;
    }
}
