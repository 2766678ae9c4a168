//! The client's side of RFC 6455, by hand: what is claimed is what is on the wire.

use std::time::Duration;

use super::client::Client;
use super::wire::{Answer, Wire};

/// RFC 6455 §1.3's own example, so that the right answer needs no SHA-1 here.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// As large as Go's writes (P§4.1).
const CHUNK: usize = 32 * 1024;

/// A message, or a frame that stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text; an empty one is the barrier of exec.
    Text(Vec<u8>),
    /// Binary.
    Binary(Vec<u8>),
    /// A ping.
    Ping(Vec<u8>),
    /// A pong.
    Pong(Vec<u8>),
    /// The end, with its code; 1005 if it has none.
    Close(u16),
}

/// A websocket.
#[derive(Debug)]
pub struct Ws {
    wire: Wire,
    /// Pings that came and were answered.
    pub pings: usize,
}

impl Ws {
    /// Opens one.
    ///
    /// # Errors
    /// If it is refused.
    pub fn open(agent: &Client, target: &str) -> Result<Self, String> {
        Self::try_open(agent, target)?.map_err(|answer| answer.short())
    }

    /// Opens one, or gives the refusal.
    ///
    /// # Errors
    /// If there is no answer.
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

    /// How long each message may take from now on.
    pub fn within(&mut self, limit: Duration) -> &mut Self {
        self.wire.within(limit);
        self
    }

    /// Sends a frame; clients mask theirs.
    ///
    /// # Errors
    /// If it cannot be sent in time.
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
    ///
    /// # Errors
    /// As with [`Ws::frame`].
    pub fn binary(&mut self, bytes: &[u8]) -> Result<(), String> {
        bytes.chunks(CHUNK).try_for_each(|chunk| self.frame(0x82, chunk))
    }

    /// Sends a text message.
    ///
    /// # Errors
    /// As with [`Ws::frame`].
    pub fn text(&mut self, text: &str) -> Result<(), String> {
        self.frame(0x81, text.as_bytes())
    }

    /// Says that no more will come: an empty text message (P§4.1).
    ///
    /// # Errors
    /// As with [`Ws::frame`].
    pub fn barrier(&mut self) -> Result<(), String> {
        self.text("")
    }

    /// The next frame: final bit, opcode, payload.
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

    /// The next message or lone frame, whatever it is.
    ///
    /// # Errors
    /// If none comes in time.
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

    /// The next message that carries data; pings are answered.
    ///
    /// # Errors
    /// If none comes in time.
    pub fn message(&mut self) -> Result<Message, String> {
        loop {
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

    /// All binary messages up to the barrier.
    ///
    /// # Errors
    /// If it does not come in time, or something else does.
    pub fn output(&mut self) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        loop {
            match self.message()? {
                Message::Binary(bytes) => all.extend(bytes),
                Message::Text(text) if text.is_empty() => return Ok(all),
                Message::Text(_) => return Err("text that is no barrier".into()),
                Message::Close(code) => {
                    return Err(format!("closed with {code} without a barrier"));
                }
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    }

    /// Reads binary messages until they hold `mark`; gives all of them.
    ///
    /// # Errors
    /// If it does not come in time.
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

    /// Hangs up without a word.
    pub fn drop_line(self) {
        self.wire.close();
    }

    /// Closes as RFC 6455 has it.
    ///
    /// # Errors
    /// As with [`Ws::frame`].
    pub fn close(&mut self) -> Result<(), String> {
        self.frame(0x88, &1000_u16.to_be_bytes())
    }
}
