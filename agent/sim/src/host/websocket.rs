//! A minimal websocket client (RFC 6455) for the simulated host, independent of the core.

use super::http::{Reader, request};
use crate::machine::Stream;

pub(crate) enum Frame {
    Binary(Vec<u8>),
    Text(Vec<u8>),
    /// A close frame, or the end of the connection.
    Over,
}

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const KEY: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

pub(crate) struct WebSocket {
    stream: Stream,
    buffer: std::cell::RefCell<Vec<u8>>,
}

/// Opens a websocket on a new connection; also returns the status.
pub(crate) async fn open(stream: Stream, path: &str) -> Option<(WebSocket, u16)> {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    stream.write_all(&request("GET", path, upgrade, "")).await.ok()?;
    let mut reader = Reader::new(&stream);
    let status = reader.message().await.ok()??.status();
    let buffer = std::cell::RefCell::new(reader.rest());
    Some((WebSocket { stream, buffer }, status))
}

impl WebSocket {
    /// Sends a frame; returns whether that worked.
    pub(crate) async fn send(&self, opcode: u8, payload: &[u8]) -> bool {
        let mut frame = vec![0x80 | opcode];
        match u8::try_from(payload.len()) {
            Ok(short @ ..126) => frame.push(0x80 | short),
            _ => {
                let length = u16::try_from(payload.len()).expect("a short frame");
                frame.push(0x80 | 126);
                frame.extend(length.to_be_bytes());
            }
        }
        frame.extend(KEY);
        frame.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
        self.stream.write_all(&frame).await.is_ok()
    }

    /// Returns the next frame. Answers pings and the close frame.
    pub(crate) async fn next(&self) -> Frame {
        loop {
            match self.frame().await {
                Some((TEXT, payload)) => return Frame::Text(payload),
                Some((BINARY, payload)) => return Frame::Binary(payload),
                Some((PING, payload)) => drop(self.send(PONG, &payload).await),
                Some((CLOSE, _)) => {
                    self.send(CLOSE, &[]).await;
                    return Frame::Over;
                }
                Some(_) => {}
                None => return Frame::Over,
            }
        }
    }

    async fn frame(&self) -> Option<(u8, Vec<u8>)> {
        let head = self.bytes(2).await?;
        let length = match head[1] & 0x7f {
            126 => u16::from_be_bytes(self.bytes(2).await?.try_into().ok()?).into(),
            127 => {
                usize::try_from(u64::from_be_bytes(self.bytes(8).await?.try_into().ok()?)).ok()?
            }
            short => short.into(),
        };
        Some((head[0] & 0xf, self.bytes(length).await?))
    }

    async fn bytes(&self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.borrow().len() < count {
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.buffer.borrow_mut().extend_from_slice(&piece[..count]),
            }
        }
        Some(self.buffer.borrow_mut().drain(..count).collect())
    }
}
