//! The server side of a websocket (RFC 6455): sends whole frames, receives messages in pieces. The
//! core's `ws.rs` encodes and decodes the frames.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use mote_core::base64::base64;
use mote_core::http::head::Request;
use mote_core::ws::{self, Incoming, Opcode};

use crate::net::serve::switch;
use crate::net::stream::Stream;
use crate::runtime::{Semaphore, within};
use crate::sys::fd::{self, AsFd};

/// Maximum payload of a [`Frame`], in bytes: see [`Stream::write_all`].
const FRAME: usize = 31 * 1024;
/// Maximum payload that is copied, to be sent with its header, in bytes.
const SHORT: usize = 4 * 1024;
/// Time limit for sending a close frame, since the peer may not read.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// A buffer for one frame, with room for the header before the payload. It is not zeroed, which
/// took a tenth of the time of a command's output.
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::with_capacity(ws::HEADER + FRAME);
        bytes.extend_from_slice(&[0; ws::HEADER]);
        Self(bytes)
    }

    /// Reads the payload; returns its length, 0 at the end. Errors: any error of read(2).
    pub(crate) fn fill(&mut self, from: impl AsFd) -> rustix::io::Result<usize> {
        self.0.truncate(ws::HEADER);
        fd::append(from, &mut self.0)
    }

    /// Returns the frame with the first `length` bytes of the payload.
    fn around(&mut self, opcode: Opcode, length: usize) -> &[u8] {
        let mut header = [0; ws::HEADER];
        let size = ws::header(opcode, length, &mut header);
        let start = ws::HEADER - size;
        if let (Some(slot), Some(header)) = (self.0.get_mut(start..ws::HEADER), header.get(..size))
        {
            slot.copy_from_slice(header);
        }
        self.0.get(start..ws::HEADER + length).unwrap_or_default()
    }
}

pub(crate) struct WebSocket {
    stream: Stream,
    /// Held while sending, because a frame may be longer than one write.
    write_lock: Rc<Semaphore>,
    /// A close frame was sent: no frame may follow (RFC 6455 §5.5.1).
    closing: Cell<bool>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'i> {
    Data {
        text: bool,
        bytes: &'i [u8],
        last: bool,
    },
    Pong,
    Closed,
    /// The connection ended without a close frame.
    Lost,
}

/// Receive buffer and frame decoder, owned by the task that reads.
pub(crate) struct Inbox {
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    reader: ws::Reader,
}

impl Inbox {
    pub(crate) fn new(size: usize) -> Self {
        Self { buffer: vec![0; size].into(), at: 0, end: 0, reader: ws::Reader::default() }
    }
}

impl WebSocket {
    /// Answers 101 to a websocket request; `accept` is from [`upgrade`].
    /// Errors: as for [`Stream::write_all`].
    pub(crate) async fn accept(stream: Stream, accept: &str) -> io::Result<Self> {
        let more = format!("Sec-WebSocket-Accept: {accept}\r\n");
        switch(&stream, "websocket", &more).await?;
        Ok(Self::new(stream))
    }

    fn new(stream: Stream) -> Self {
        Self { stream, write_lock: Rc::new(Semaphore::new(1)), closing: Cell::new(false) }
    }

    /// Removes the write time limit: the peer may read slowly.
    pub(crate) fn disable_write_timeout(&self) {
        self.stream.disable_write_timeout();
    }

    /// Sends one whole frame; frames of two senders never mix.
    /// Errors: as for [`Stream::write_all`], or `BrokenPipe` after a close frame.
    pub(crate) async fn send(&self, opcode: Opcode, payload: &[u8]) -> io::Result<()> {
        let _writing = self.write_lock.clone().take().await;
        self.still_open()?;
        self.write(opcode, payload).await
    }

    fn still_open(&self) -> io::Result<()> {
        if self.closing.get() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    async fn write(&self, opcode: Opcode, payload: &[u8]) -> io::Result<()> {
        let mut header = [0; ws::HEADER];
        let size = ws::header(opcode, payload.len(), &mut header);
        // A short payload is sent with its header; a long one is not copied.
        let (short, long) =
            if payload.len() <= SHORT { (payload, &[][..]) } else { (&[][..], payload) };
        let mut out = Vec::with_capacity(size + short.len());
        out.extend_from_slice(header.get(..size).unwrap_or_default());
        out.extend_from_slice(short);
        self.stream.write_all(&out).await?;
        drop(out);
        self.stream.write_all(long).await
    }

    /// Sends the first `length` bytes of the frame's payload as a binary message. Needs no write
    /// lock: TLS buffers each such frame completely. Errors: as for [`WebSocket::send`].
    pub(crate) async fn send_frame(&self, frame: &mut Frame, length: usize) -> io::Result<()> {
        self.still_open()?;
        self.stream.write_all(frame.around(Opcode::Binary, length)).await
    }

    /// Sends a close frame (1000) unless one was sent, then closes the stream.
    pub(crate) async fn close(&self) {
        self.send_close(Some(1000)).await;
        self.stream.close().await;
    }

    /// Sends a close frame, with a status code or without, unless one was sent.
    async fn send_close(&self, code: Option<u16>) {
        if self.closing.replace(true) {
            return;
        }
        let code = code.map(u16::to_be_bytes);
        let payload = code.as_ref().map_or(&[][..], |code| code);
        // Ignore errors: the peer may be disconnected, or not reading.
        let _gone = within(CLOSE_WAIT, async {
            let _writing = self.write_lock.clone().take().await;
            self.write(Opcode::Close, payload).await
        })
        .await;
    }

    /// Waits for the next part of a message, a pong, or the end. Answers pings and close frames;
    /// answers a protocol violation with a close frame that has its code. Errors: as
    /// [`Stream::read`] and, for answers, [`Stream::write_all`]; `InvalidData` after a protocol
    /// violation. Cancellation: no received data is lost; an answer to a ping may be.
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
            let (code, end) = match inbox.reader.take(input) {
                Ok((used, incoming)) => {
                    inbox.at += used;
                    match incoming {
                        Incoming::More => continue,
                        Incoming::Ping(payload) => {
                            self.send(Opcode::Pong, &payload).await?;
                            continue;
                        }
                        Incoming::Pong => return Ok(Received::Pong),
                        Incoming::Data { text, bytes, last } => {
                            // Slice again, to end the borrow of `input`.
                            let (at, length) = (inbox.at, bytes.len());
                            let bytes = inbox.buffer.get(at - length..at).unwrap_or_default();
                            return Ok(Received::Data { text, bytes, last });
                        }
                        Incoming::Close(code) => (code, Ok(Received::Closed)),
                    }
                }
                Err(violation) => (Some(violation.code()), Err(io::ErrorKind::InvalidData.into())),
            };
            self.send_close(code).await;
            return end;
        }
    }

    /// Waits until the peer disconnects; ignores its messages.
    pub(crate) async fn left(&self) {
        let mut inbox = Inbox::new(256);
        while !matches!(
            self.receive(&mut inbox).await,
            Ok(Received::Closed | Received::Lost) | Err(_)
        ) {}
    }
}

/// Returns the value of `Sec-WebSocket-Accept` for a websocket request; `None` for a plain request.
/// Errors: text for a 400 answer.
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
    // 20 bytes are 27 base64 digits.
    let digits = base64(context.finish().as_ref(), ['+', '/']).chain(['=']).collect();
    Ok(Some(digits))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use smol::LocalExecutor;
    use smol::future::zip;

    use super::*;
    use crate::runtime::{Async, block_on};

    #[test]
    fn a_short_frame_waits_for_a_long_one_that_is_blocked() {
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
        // The peer reads too little for the kernel to wake the waiting writer.
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
