//! A websocket on a stream, our side (RFC 6455): whole frames out, messages in piece by piece. The
//! frames are the core's (`ws.rs`).

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use mote_agent::http::head::Request;
use mote_agent::ws::{self, Incoming, Opcode};
use rustix::buffer::spare_capacity;

use crate::host::Places;
use crate::stream::Stream;

/// Most payload we put into one frame, bytes: see [`Stream::write_all`].
const FRAME: usize = 31 * 1024;

/// Room for one frame that is filled in place: the header goes right before the payload. Not zeroed, which
/// was a tenth of what a command's output cost.
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::with_capacity(ws::HEADER + FRAME);
        bytes.extend_from_slice(&[0; ws::HEADER]);
        Self(bytes)
    }

    /// Reads the payload; 0 is the end.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn fill(&mut self, from: impl AsFd) -> rustix::io::Result<usize> {
        self.0.truncate(ws::HEADER);
        rustix::io::read(from, spare_capacity(&mut self.0))
    }

    /// The frame around the first bytes of the payload.
    fn around(&mut self, opcode: Opcode, length: usize) -> &[u8] {
        let mut header = [0; ws::HEADER];
        let size = ws::header(opcode, length, &mut header);
        let start = ws::HEADER - size;
        if let (Some(place), Some(header)) = (self.0.get_mut(start..ws::HEADER), header.get(..size))
        {
            place.copy_from_slice(header);
        }
        self.0.get(start..ws::HEADER + length).unwrap_or_default()
    }
}

/// A websocket. Sending and receiving may go on at the same time.
pub(crate) struct WebSocket {
    stream: Stream,
    /// One place, for who sends: a frame may be longer than what the stream takes at once.
    pen: Rc<Places>,
}

/// What was received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'i> {
    /// Part of a message.
    Data {
        /// Text rather than bytes.
        text: bool,
        /// The part.
        bytes: &'i [u8],
        /// Whether the message ends with it.
        last: bool,
    },
    /// It answered a ping.
    Pong,
    /// It said goodbye.
    Closed,
    /// The connection ended without one.
    Lost,
}

/// The receiving side: owned by the one who reads.
pub(crate) struct Inbox {
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    reader: ws::Reader,
}

impl Inbox {
    /// One that reads so much at a time.
    pub(crate) fn new(size: usize) -> Self {
        Self { buffer: vec![0; size].into(), at: 0, end: 0, reader: ws::Reader::default() }
    }
}

impl WebSocket {
    /// Says yes to a request for a websocket; `accept` is [`upgrade`]'s.
    ///
    /// # Errors
    /// The stream's.
    pub(crate) async fn accept(stream: Stream, accept: &str) -> io::Result<Self> {
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        Ok(Self::new(stream))
    }

    fn new(stream: Stream) -> Self {
        Self { stream, pen: Rc::new(Places::new(1)) }
    }

    /// Lets the peer take its time to read.
    pub(crate) fn be_patient(&self) {
        self.stream.be_patient();
    }

    /// Sends one frame, whole, so that frames of two writers never mix.
    ///
    /// # Errors
    /// The stream's.
    pub(crate) async fn send(&self, opcode: Opcode, payload: &[u8]) -> io::Result<()> {
        let mut header = [0; ws::HEADER];
        let size = ws::header(opcode, payload.len(), &mut header);
        let mut out = Vec::with_capacity(size + payload.len());
        out.extend_from_slice(header.get(..size).unwrap_or_default());
        out.extend_from_slice(payload);
        let _pen = self.pen.clone().take().await;
        self.stream.write_all(&out).await
    }

    /// Sends the first bytes of a frame's payload as a binary message, without waiting for other senders:
    /// where it is used there is TLS, which takes each frame whole.
    ///
    /// # Errors
    /// The stream's.
    pub(crate) async fn send_frame(&self, frame: &mut Frame, length: usize) -> io::Result<()> {
        self.stream.write_all(frame.around(Opcode::Binary, length)).await
    }

    /// Says that nothing more comes, then closes.
    pub(crate) async fn close(&self) {
        // A peer that is gone need not hear it.
        let _gone = self.send(Opcode::Close, &1000u16.to_be_bytes()).await;
        self.stream.close().await;
    }

    /// Waits for something; pings are answered on the way.
    ///
    /// # Errors
    /// The stream's, or `InvalidData` if the peer breaks the protocol.
    ///
    /// # Cancellation
    /// Loses nothing that was not given out.
    pub(crate) async fn receive<'i>(&self, inbox: &'i mut Inbox) -> io::Result<Received<'i>> {
        loop {
            if inbox.at == inbox.end {
                (inbox.at, inbox.end) = (0, 0);
                let count = self.stream.read(&mut inbox.buffer).await?;
                if count == 0 {
                    return Ok(Received::Lost);
                }
                inbox.end = count;
            }
            let from = inbox.at;
            let input = inbox.buffer.get_mut(from..inbox.end).unwrap_or_default();
            let (used, incoming) =
                inbox.reader.take(input).map_err(|_| io::ErrorKind::InvalidData)?;
            inbox.at += used;
            let data = match incoming {
                Incoming::More => continue,
                Incoming::Ping(payload) => {
                    self.send(Opcode::Pong, &payload).await?;
                    continue;
                }
                Incoming::Pong => return Ok(Received::Pong),
                Incoming::Close => return Ok(Received::Closed),
                Incoming::Data { text, bytes, last } => (text, bytes.len(), last),
            };
            // By its place: the borrow of the loop's own input must end here.
            let (text, length, last) = data;
            let bytes = inbox.buffer.get(inbox.at - length..inbox.at).unwrap_or_default();
            return Ok(Received::Data { text, bytes, last });
        }
    }

    /// Waits until the peer leaves, whatever it says before.
    pub(crate) async fn left(&self) {
        let mut inbox = Inbox::new(256);
        while !matches!(
            self.receive(&mut inbox).await,
            Ok(Received::Closed | Received::Lost) | Err(_)
        ) {}
    }
}

/// The `Sec-WebSocket-Accept` for a websocket request; `None` for a plain one.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn upgrade(request: &Request<'_>) -> Result<Option<String>, &'static str> {
    if !request.headers.has_token("Upgrade", "websocket") {
        return Ok(None);
    }
    if request.headers.get("Sec-WebSocket-Version") != Some(b"13") {
        return Err("Unsupported websocket version");
    }
    let Some(key) = request.headers.get("Sec-WebSocket-Key") else {
        return Err("Missing Sec-WebSocket-Key");
    };
    let mut context = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(ws::ACCEPT_SUFFIX.as_bytes());
    let mut accept = String::new();
    let _infallible = ws::write_base64(&mut accept, context.finish().as_ref());
    Ok(Some(accept))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use async_executor::LocalExecutor;
    use futures_lite::future::zip;

    use super::*;
    use crate::reactor::{Async, block_on};

    #[test]
    fn a_short_frame_does_not_get_into_a_long_one_that_waits_for_the_peer() {
        const LONG: usize = 1024 * 1024;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = Async::new(theirs).unwrap();
        let socket = WebSocket::new(Stream::plain(Async::new(ours.into()).unwrap()));
        let long = [b'a'; LONG];
        let mut got = Vec::new();
        let mut read = async |upto: usize| {
            let mut piece = vec![0; 64 * 1024];
            while got.len() < upto {
                let count = theirs.read_with(|mut peer| peer.read(&mut piece)).await.unwrap();
                got.extend_from_slice(&piece[..count]);
            }
        };
        // The peer makes some room, but too little for the kernel to tell who waits for it.
        let peer = async {
            read(96 * 1024).await;
            let short = async { socket.send(Opcode::Ping, b"x").await.unwrap() };
            zip(short, read(10 + LONG + 3)).await;
        };
        let long = async { socket.send(Opcode::Text, &long).await.unwrap() };
        block_on(&LocalExecutor::new(), zip(long, peer));
        assert_eq!(got[10..].iter().position(|byte| *byte != b'a'), Some(LONG));
        assert_eq!(got[10 + LONG..], [0x89, 1, b'x']);
    }
}
