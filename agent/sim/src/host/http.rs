//! A minimal HTTP client and server, and a websocket client (RFC 6455), independent of the core.

use crate::sim_prelude::*;

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) first: String,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn status(&self) -> u16 {
        self.first.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
}

pub(crate) struct Reader<'s> {
    stream: &'s Stream,
    buffer: Vec<u8>,
}

impl<'s> Reader<'s> {
    pub(crate) fn new(stream: &'s Stream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) async fn message(&mut self) -> Result<Option<Message>, Broken> {
        let head = loop {
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                drop(self.buffer.drain(..end + 4));
                break head;
            }
            if !self.more().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(Broken) };
            }
        };
        let (first, rest) = head.split_once("\r\n").unwrap_or((&head, ""));
        let mut message =
            Message { first: first.to_owned(), head: rest.to_owned(), body: Vec::new() };
        let length = message.header("content-length").and_then(|text| text.parse().ok());
        let length: usize = length.unwrap_or(0);
        while self.buffer.len() < length {
            if !self.more().await? {
                return Err(Broken);
            }
        }
        message.body = self.buffer.drain(..length).collect();
        Ok(Some(message))
    }

    pub(crate) fn rest(self) -> Vec<u8> {
        self.buffer
    }

    /// Returns the next line after the head.
    pub(crate) async fn line(&mut self) -> Result<Option<String>, Broken> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    async fn more(&mut self) -> Result<bool, Broken> {
        let mut buffer = [0; 1024];
        let count = self.stream.read(&mut buffer).await?;
        self.buffer.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }
}

pub(crate) fn request(method: &str, target: &str, extra: &str, body: &str) -> Vec<u8> {
    let length = match method {
        "GET" => String::new(),
        _ => format!("Content-Length: {}\r\n", body.len()),
    };
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{extra}{length}\r\n{body}").into_bytes()
}

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
    buffer: RefCell<Vec<u8>>,
}

/// Opens a websocket on a new connection; also returns the status.
pub(crate) async fn open_websocket(stream: Stream, path: &str) -> Option<(WebSocket, u16)> {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    stream.write_all(&request("GET", path, upgrade, "")).await.ok()?;
    let mut reader = Reader::new(&stream);
    let status = reader.message().await.ok()??.status();
    let buffer = RefCell::new(reader.rest());
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
