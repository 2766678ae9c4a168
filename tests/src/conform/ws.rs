//! Websockets to an agent (RFC 6455), by a library that shares no code with it. Each frame that
//! claims concern can be sent and seen.

use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame};
use tungstenite::protocol::{Role, WebSocket};
use tungstenite::{Error, Utf8Bytes};

pub use tungstenite::Message;

use super::wire::{Answer, Wire};
use crate::prelude::*;

/// The example of RFC 6455 §1.3, so that the answer can be checked without SHA-1.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Maximum size of a message that is sent, in bytes: the size of Go's writes (P§4.1).
const CHUNK: usize = 32 * 1024;

#[derive(Debug)]
pub struct Ws(WebSocket<Wire>);

impl Ws {
    pub fn open(agent: &Client, target: &str) -> Try<Self> {
        Self::try_open(agent, target)?.map_err(|answer| answer.short())
    }

    /// Opens a websocket, or returns the answer that refuses it.
    pub fn try_open(agent: &Client, target: &str) -> Try<Result<Self, Answer>> {
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
        Ok(Ok(Self(WebSocket::from_raw_socket(wire, Role::Client, None))))
    }

    pub fn within(&mut self, limit: Duration) -> &mut Self {
        self.0.get_mut().within(limit);
        self
    }

    fn send(&mut self, message: Message) -> Try {
        self.0.get_mut().begin();
        self.0.send(message).map_err(said)
    }

    pub fn part(&mut self, kind: Data, bytes: &[u8], is_last: bool) -> Try {
        let frame = Frame::message(bytes.to_vec(), OpCode::Data(kind), is_last);
        self.send(Message::Frame(frame))
    }

    pub fn binary(&mut self, bytes: &[u8]) -> Try {
        bytes.chunks(CHUNK).try_for_each(|chunk| self.send(Message::binary(chunk.to_vec())))
    }

    pub fn text(&mut self, text: &str) -> Try {
        self.send(Message::text(text))
    }

    /// Sends the barrier, an empty text message that ends our data (P§4.1).
    pub fn barrier(&mut self) -> Try {
        self.text("")
    }

    /// Reads the next message or control frame. A ping is answered.
    pub fn any(&mut self) -> Try<Message> {
        self.0.get_mut().begin();
        let message = self.0.read().map_err(said)?;
        if message.is_ping() {
            self.0.flush().map_err(said)?;
        }
        Ok(message)
    }

    /// Reads the next data message or close frame. Earlier pings do not extend the limit.
    pub fn message(&mut self) -> Try<Message> {
        self.0.get_mut().begin();
        loop {
            let message = self.0.read().map_err(said)?;
            if !message.is_ping() && !message.is_pong() {
                return Ok(message);
            }
        }
    }

    pub fn output(&mut self) -> Try<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            match self.message()? {
                Message::Binary(bytes) => all.extend(bytes),
                Message::Text(text) if text.is_empty() => return Ok(all),
                Message::Close(frame) => {
                    let code = frame.map_or(1005, |frame| u16::from(frame.code));
                    return Err(format!("closed with {code} without a barrier"));
                }
                _ => return Err("text other than a barrier".into()),
            }
        }
    }

    /// Reads binary messages until they contain `mark`; returns all of them.
    pub fn until(&mut self, mark: &str) -> Try<String> {
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

    pub fn json(&mut self) -> Try<Value> {
        match self.message()? {
            Message::Text(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
            other => Err(format!("{other:?} is not an event")),
        }
    }

    pub fn drop_line(self) {
        self.0.into_inner().close();
    }

    pub fn close(&mut self) -> Try {
        self.0.get_mut().begin();
        let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        self.0.close(Some(frame)).map_err(said)
    }
}

fn said(error: Error) -> String {
    match error {
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ResetWithoutClosingHandshake) => "the connection ended".into(),
        Error::Io(error) => super::wire::told(&error),
        error => error.to_string(),
    }
}
