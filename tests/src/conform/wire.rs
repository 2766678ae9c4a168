//! A connection to an agent with deadlines: TLS as the servers' clients do it (P§3.2), and the
//! part of HTTP that they use. This reader of HTTP takes each byte once and none in advance, so
//! that claims concern the bytes on the wire.

use mote_client::agent::client::Stream;
use mote_client::net::stream::{Limit, Timed};
use rustls::{ClientConnection, StreamOwned};

use super::check::{Claim, Miss, same};
use crate::prelude::*;

/// Time limit of all steps without a limit of their own.
pub const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Wire {
    link: Stream,
    limit: Duration,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn parse(text: &str) -> Try<Self> {
        let (head, body) = text.split_once("\r\n\r\n").ok_or("no HTTP")?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok(Self { status: status.ok_or("no HTTP")?, head: head.into(), body: body.into() })
    }

    /// Requires this status. If the answer says that something was too slow, reports its text.
    pub fn is(&self, status: u16) -> Claim {
        let late = Miss::Differs(self.short());
        same("status", self.status, status).map_err(|miss| if late.is_late() { late } else { miss })
    }

    pub fn field(&self, name: &str) -> &str {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let field = fields.find(|(key, _)| key.eq_ignore_ascii_case(name));
        field.map_or("", |(_, value)| value.trim())
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

    pub fn short(&self) -> String {
        let json = self.json();
        let text = json["error"].as_str().map_or_else(|| self.text(), str::to_owned);
        format!("{} {}", self.status, text.trim()).trim_end().to_owned()
    }
}

/// Describes an I/O error of a connection, such as its unexpected end.
pub(super) fn told(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => "nothing came in time".into(),
        ErrorKind::UnexpectedEof => "the connection ended".into(),
        _ => error.to_string(),
    }
}

impl Wire {
    pub fn new(connection: ClientConnection, socket: Timed) -> Try<Self> {
        let mut link = StreamOwned::new(connection, socket);
        while link.conn.is_handshaking() {
            link.conn.complete_io(&mut link.sock).map_err(|error| told(&error))?;
        }
        Ok(Self { link, limit: TIMEOUT })
    }

    pub fn within(&mut self, limit: Duration) -> &mut Self {
        self.limit = limit;
        self
    }

    /// Restarts the time limit for a call: sending and answer together must not exceed it.
    pub(super) fn begin(&mut self) {
        self.link.sock.limit(Limit::Until(Instant::now() + patient(self.limit)));
    }

    pub fn send(&mut self, bytes: &[u8]) -> Try {
        self.begin();
        let sent = self.link.write_all(bytes).and_then(|()| self.link.flush());
        sent.map_err(|error| format!("sending failed: {}", error.kind()))
    }

    pub fn exactly(&mut self, count: usize) -> Try<Vec<u8>> {
        self.begin();
        let mut bytes = vec![0; count];
        self.read_exact(&mut bytes).map_err(|error| told(&error))?;
        Ok(bytes)
    }

    pub fn until(&mut self, mark: &[u8]) -> Try<Vec<u8>> {
        self.begin();
        let (mut bytes, mut byte) = (Vec::new(), [0]);
        while !bytes.ends_with(mark) {
            self.read_exact(&mut byte).map_err(|error| told(&error))?;
            bytes.extend(byte);
        }
        Ok(bytes)
    }

    pub fn rest(&mut self) -> Try<Vec<u8>> {
        self.begin();
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(|error| told(&error))?;
        Ok(bytes)
    }

    pub fn ask(&mut self, method: &str, target: &str, fields: &str, body: &[u8]) -> Try<Answer> {
        let length = match (method, body.len()) {
            ("GET", 0) => String::new(),
            (_, length) => format!("Content-Length: {length}\r\n"),
        };
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: custom.socket\r\n{length}{fields}\r\n");
        self.send(&[head.as_bytes(), body].concat())?;
        self.answer()
    }

    /// Reads an answer; of a 101, only the head.
    pub fn answer(&mut self) -> Try<Answer> {
        let head = String::from_utf8_lossy(&self.until(b"\r\n\r\n")?).into_owned();
        let mut answer = Answer::parse(&head)?;
        if answer.status != 101 {
            answer.body = self.body(&answer)?;
        }
        Ok(answer)
    }

    fn body(&mut self, answer: &Answer) -> Try<Vec<u8>> {
        if !answer.field("transfer-encoding").eq_ignore_ascii_case("chunked") {
            return match answer.field("content-length").parse() {
                Ok(length) => self.exactly(length),
                Err(_) => self.rest(),
            };
        }
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.until(b"\r\n")?).unwrap_or_default();
            let size = usize::from_str_radix(line.trim(), 16).map_err(|_| "a broken chunk")?;
            body.extend(self.exactly(size)?);
            let _end = self.exactly(2)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Ends TLS and closes the connection, as a client does when it has finished.
    pub fn close(mut self) {
        self.link.conn.send_close_notify();
        let _gone = self.link.flush();
    }
}

impl Read for Wire {
    /// Reads within the current call's time limit. A reset counts as the end of the connection.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ends = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        match self.link.read(buffer) {
            Err(error) if ends.contains(&error.kind()) => Ok(0),
            read => read,
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link.flush()
    }
}
