//! A minimal HTTP client and server for the simulation, independent of the core.

use crate::machine::{Broken, Stream};

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

    /// Returns an answer's status; 0 for a request.
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

    /// Returns the bytes after the last message.
    pub(crate) fn rest(self) -> Vec<u8> {
        self.buffer
    }

    /// Returns the next line, without a head.
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
