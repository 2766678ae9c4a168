//! A connection to an agent with deadlines: TLS as the servers' clients do it (P§3.2), and the
//! part of HTTP that they use.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;

use crate::patient;

/// Time limit of all steps that no claim about time covers.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to an agent.
#[derive(Debug)]
pub struct Wire {
    link: StreamOwned<ClientConnection, UnixStream>,
    have: Vec<u8>,
    limit: Duration,
    end: Instant,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Parses a whole answer whose body extends to the end.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (head, body) = text.split_once("\r\n\r\n").ok_or("no HTTP")?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok(Self { status: status.ok_or("no HTTP")?, head: head.into(), body: body.into() })
    }

    /// A field of the head; empty if it is missing.
    pub fn field(&self, name: &str) -> &str {
        let of = |line: &'_ str| {
            line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name))
        };
        let line = self.head.lines().skip(1).find(|line| of(line));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn metadata(&self) -> Value {
        self.json()["metadata"].clone()
    }

    /// Status and error text in one line.
    pub fn short(&self) -> String {
        let json = self.json();
        let text = json["error"].as_str().map_or_else(|| self.text(), str::to_owned);
        format!("{} {}", self.status, text.trim()).trim_end().to_owned()
    }
}

impl Wire {
    pub fn new(connection: ClientConnection, socket: UnixStream) -> Result<Self, String> {
        let link = StreamOwned::new(connection, socket);
        let mut wire =
            Self { link, have: Vec::new(), limit: TIMEOUT, end: Instant::now() + patient(TIMEOUT) };
        while wire.link.conn.is_handshaking() {
            wire.hurry()?;
            wire.link.conn.complete_io(&mut wire.link.sock).map_err(|error| error.to_string())?;
        }
        Ok(wire)
    }

    /// Sets the time limit of each later call.
    pub fn within(&mut self, limit: Duration) -> &mut Self {
        self.limit = limit;
        self
    }

    pub fn limit(&self) -> Duration {
        self.limit
    }

    fn begin(&mut self) {
        self.end = Instant::now() + patient(self.limit);
    }

    /// Sets the socket's timeouts to the time that is left.
    fn hurry(&self) -> Result<(), String> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("nothing came in time".into());
        }
        let set = |result: std::io::Result<()>| result.map_err(|error| error.to_string());
        set(self.link.sock.set_read_timeout(Some(left)))?;
        set(self.link.sock.set_write_timeout(Some(left)))
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.begin();
        self.hurry()?;
        let sent = self.link.write_all(bytes).and_then(|()| self.link.flush());
        sent.map_err(|error| format!("sending failed: {}", error.kind()))
    }

    /// Reads more bytes; false at the end of the connection.
    fn fill(&mut self) -> Result<bool, String> {
        let mut buffer = [0; 16384];
        loop {
            self.hurry()?;
            match self.link.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.have.extend_from_slice(&buffer[..count]);
                    return Ok(true);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    ErrorKind::UnexpectedEof
                    | ErrorKind::ConnectionReset
                    | ErrorKind::BrokenPipe => return Ok(false),
                    _ => return Err(error.to_string()),
                },
            }
        }
    }

    pub fn take(&mut self, count: usize) -> Result<Vec<u8>, String> {
        self.begin();
        while self.have.len() < count {
            if !self.fill()? {
                return Err("the connection ended".into());
            }
        }
        let rest = self.have.split_off(count);
        Ok(std::mem::replace(&mut self.have, rest))
    }

    /// Reads up to and including `mark`.
    pub fn until(&mut self, mark: &[u8]) -> Result<Vec<u8>, String> {
        self.begin();
        let mut from = 0;
        loop {
            let found = self.have[from..].windows(mark.len()).position(|window| window == mark);
            if let Some(at) = found {
                return self.take(from + at + mark.len());
            }
            from = (self.have.len() + 1).saturating_sub(mark.len());
            if !self.fill()? {
                return Err("the connection ended".into());
            }
        }
    }

    pub fn rest(&mut self) -> Result<Vec<u8>, String> {
        self.begin();
        while self.fill()? {}
        Ok(std::mem::take(&mut self.have))
    }

    /// Sends a request and reads its answer.
    pub fn ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
        body: &[u8],
    ) -> Result<Answer, String> {
        let length = body.len();
        let length = if length == 0 && method == "GET" {
            String::new()
        } else {
            format!("Content-Length: {length}\r\n")
        };
        let mut bytes =
            format!("{method} {target} HTTP/1.1\r\nHost: custom.socket\r\n{length}{fields}\r\n")
                .into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes)?;
        self.answer()
    }

    /// Reads an answer; of a 101, only the head.
    pub fn answer(&mut self) -> Result<Answer, String> {
        let head = String::from_utf8_lossy(&self.until(b"\r\n\r\n")?).into_owned();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut answer = Answer { status: status.ok_or("no HTTP")?, head, body: Vec::new() };
        if answer.status != 101 {
            answer.body = self.body(&answer)?;
        }
        Ok(answer)
    }

    fn body(&mut self, answer: &Answer) -> Result<Vec<u8>, String> {
        if answer.field("transfer-encoding").eq_ignore_ascii_case("chunked") {
            let mut body = Vec::new();
            loop {
                let line = self.until(b"\r\n")?;
                let size = std::str::from_utf8(&line)
                    .ok()
                    .and_then(|line| usize::from_str_radix(line.trim(), 16).ok());
                let size = size.ok_or("a broken chunk")?;
                body.extend(self.take(size)?);
                let _end = self.take(2)?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        match answer.field("content-length").parse() {
            Ok(length) => self.take(length),
            Err(_) => self.rest(),
        }
    }

    /// Ends TLS and closes the connection, as a client does when it has finished.
    pub fn close(mut self) {
        self.link.conn.send_close_notify();
        let _gone = self.link.flush();
    }
}
