//! The HTTP and the certificates that the other files need.

use std::io::{Read, Write};
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A request or an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    /// The head, up to and including the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn first_line(&self) -> &str {
        self.head.lines().next().unwrap_or("")
    }

    /// Returns a header's value. The name's case matters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ str| line.strip_prefix(name)?.strip_prefix(": ").map(str::len);
        let line = self.head.lines().find(|line| value(line).is_some())?;
        Some(&line[name.len() + 2..])
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }
}

/// Reads a message of the announced length, or up to the end of the connection.
pub(crate) fn read(stream: &mut impl Read) -> std::io::Result<Message> {
    read_or(stream, None)
}

/// Reads a request of the announced length, or without a body.
pub(crate) fn read_request(stream: &mut impl Read) -> std::io::Result<Message> {
    read_or(stream, Some(0))
}

fn read_or(stream: &mut impl Read, unsaid: Option<usize>) -> std::io::Result<Message> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let mut more = |bytes: &mut Vec<u8>| -> std::io::Result<usize> {
        let count = stream.read(&mut buffer)?;
        bytes.extend_from_slice(&buffer[..count]);
        Ok(count)
    };
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if more(&mut bytes)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut message = Message { head, body: bytes.split_off(end + 4) };
    let length: Option<usize> =
        message.header("Content-Length").map(|length| length.parse().unwrap()).or(unsaid);
    while length.is_none_or(|length| message.body.len() < length) {
        if more(&mut message.body)? == 0 {
            break;
        }
    }
    Ok(message)
}

pub(crate) fn accept_websocket(stream: &mut impl Write, request: &Message) -> std::io::Result<()> {
    let key = request.header("Sec-WebSocket-Key").unwrap_or_default();
    let key = tungstenite::handshake::derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {key}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.flush()
}

pub(crate) fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

pub(crate) fn key(path: &Path) -> PrivateKeyDer<'static> {
    let text = std::fs::read_to_string(path).unwrap();
    // The form that Go agents read (P§1.2).
    assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{text}");
    PrivateKeyDer::from_pem_slice(text.as_bytes()).unwrap()
}
