//! The client side of RFC 6455, written out here so that claims concern the bytes on the wire.

use std::time::{Duration, Instant};

use super::client::Client;
use super::wire::{Answer, Wire};
use crate::patient;

/// The example of RFC 6455 §1.3, so that the answer can be checked without SHA-1.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Largest message sent, bytes: the size of Go's writes (P§4.1).
const CHUNK: usize = 32 * 1024;

/// A message or a control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text; an empty one is the barrier of exec.
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// A close frame with its code; 1005 if it has none.
    Close(u16),
}

#[derive(Debug)]
pub struct Ws {
    wire: Wire,
    /// Number of pings that were answered.
    pub pings: usize,
}

impl Ws {
    pub fn open(agent: &Client, target: &str) -> Result<Self, String> {
        Self::try_open(agent, target)?.map_err(|answer| answer.short())
    }

    /// Opens a websocket, or returns the answer that refuses it.
    pub fn try_open(agent: &Client, target: &str) -> Result<Result<Self, Answer>, String> {
        let mut wire = agent.connect()?;
        let fields = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {KEY}\r\n"
        );
        let answer = wire.ask("GET", target, &fields, b"")?;
        if answer.status != 101 {
            return Ok(Err(answer));
        }
        if answer.field("sec-websocket-accept") != ACCEPT {
            return Err("a wrong Sec-WebSocket-Accept".into());
        }
        Ok(Ok(Self { wire, pings: 0 }))
    }

    /// Sets the time limit of each later message.
    pub fn within(&mut self, limit: Duration) -> &mut Self {
        self.wire.within(limit);
        self
    }

    /// Sends a frame with `first` as its first byte, masked as a client's must be.
    pub fn frame(&mut self, first: u8, payload: &[u8]) -> Result<(), String> {
        const MASK: [u8; 4] = [0x5a, 0x01, 0xfe, 0x77];
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..=125 => bytes.push(0x80 | u8::try_from(length).unwrap_or(0)),
            length => match u16::try_from(length) {
                Ok(length) => {
                    bytes.push(0x80 | 126);
                    bytes.extend(length.to_be_bytes());
                }
                Err(_) => {
                    bytes.push(0x80 | 127);
                    bytes.extend((length as u64).to_be_bytes());
                }
            },
        }
        bytes.extend(MASK);
        bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.wire.send(&bytes)
    }

    /// Sends bytes as binary messages.
    pub fn binary(&mut self, bytes: &[u8]) -> Result<(), String> {
        bytes.chunks(CHUNK).try_for_each(|chunk| self.frame(0x82, chunk))
    }

    pub fn text(&mut self, text: &str) -> Result<(), String> {
        self.frame(0x81, text.as_bytes())
    }

    /// Sends the barrier, an empty text message that ends our data (P§4.1).
    pub fn barrier(&mut self) -> Result<(), String> {
        self.text("")
    }

    /// Reads the next frame: final bit, opcode, payload.
    fn raw(&mut self) -> Result<(bool, u8, Vec<u8>), String> {
        let head = self.wire.take(2)?;
        if head[1] & 0x80 != 0 {
            return Err("a server's frame was masked".into());
        }
        let length = match head[1] {
            126 => self.wire.take(2)?,
            127 => self.wire.take(8)?,
            length => vec![length],
        };
        let length = length.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
        Ok((head[0] & 0x80 != 0, head[0] & 0x0f, self.wire.take(length)?))
    }

    /// Reads the next message or control frame.
    pub fn any(&mut self) -> Result<Message, String> {
        let (mut last, kind, mut payload) = self.raw()?;
        while !last {
            let (end, _, more) = self.raw()?;
            payload.extend(more);
            last = end;
        }
        Ok(match kind {
            1 => Message::Text(payload),
            2 => Message::Binary(payload),
            8 => Message::Close(match payload[..] {
                [high, low, ..] => u16::from_be_bytes([high, low]),
                _ => 1005,
            }),
            9 => Message::Ping(payload),
            10 => Message::Pong(payload),
            other => return Err(format!("opcode {other}")),
        })
    }

    /// Reads the next data message or close frame. Answers earlier pings, which do not extend the
    /// limit.
    pub fn message(&mut self) -> Result<Message, String> {
        let end = Instant::now() + patient(self.wire.limit());
        loop {
            if Instant::now() > end {
                return Err("nothing but pings came in time".into());
            }
            match self.any()? {
                Message::Ping(payload) => {
                    self.pings += 1;
                    self.frame(0x8a, &payload)?;
                }
                Message::Pong(_) => {}
                message @ (Message::Text(_) | Message::Binary(_) | Message::Close(_)) => {
                    return Ok(message);
                }
            }
        }
    }

    /// Reads all binary messages up to the barrier.
    pub fn output(&mut self) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        loop {
            match self.message()? {
                Message::Binary(bytes) => all.extend(bytes),
                Message::Text(text) if text.is_empty() => return Ok(all),
                Message::Text(_) => return Err("text other than a barrier".into()),
                Message::Close(code) => {
                    return Err(format!("closed with {code} without a barrier"));
                }
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    }

    /// Reads binary messages until they contain `mark`; returns all of them.
    pub fn until(&mut self, mark: &str) -> Result<String, String> {
        let mut all = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&all).into_owned();
            if text.contains(mark) {
                return Ok(text);
            }
            match self.message()? {
                Message::Binary(bytes) => all.extend(bytes),
                _ => return Err(format!("{mark:?} did not come, but {text:?}")),
            }
        }
    }

    /// Closes the connection without a close frame.
    pub fn drop_line(self) {
        self.wire.close();
    }

    /// Sends a close frame with code 1000.
    pub fn close(&mut self) -> Result<(), String> {
        self.frame(0x88, &1000_u16.to_be_bytes())
    }
}
