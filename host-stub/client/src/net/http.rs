//! Blocking HTTP/1.1 over any stream, one request per connection: enough for a host that agents
//! call. None of the code is the agent's.

use std::io::{Read, Write};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::common::limits::{CHUNK_LINE, HEAD};
use crate::limits;

#[derive(Clone, Debug, Default)]
pub struct Message {
    pub method: String,
    /// Path and query of a request.
    pub target: String,
    pub status: u16,
    /// Header fields, names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Message {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or("")
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    pub fn json(&self) -> Result<Value> {
        limits::json(&self.body).context("the body is not JSON")
    }
}

fn fields(headers: &[httparse::Header<'_>]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    headers.iter().map(|field| (field.name.to_ascii_lowercase(), text(field.value))).collect()
}

/// Reads a request with a body of at most `most` bytes. `None` if the peer closed without one.
pub fn read_request(stream: &mut impl Read, most: usize) -> Result<Option<Message>> {
    let Some((mut message, rest)) = read_head(stream, |bytes| {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(length) = parsed.parse(bytes)? else { return Ok(None) };
        let message = Message {
            method: parsed.method.unwrap_or("").into(),
            target: parsed.path.unwrap_or("").into(),
            headers: fields(parsed.headers),
            ..Message::default()
        };
        Ok(Some((message, length)))
    })?
    else {
        return Ok(None);
    };
    message.body = read_body(stream, &message, rest, false, most)?;
    Ok(Some(message))
}

pub fn unanswered() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "closed without an answer")
}

pub fn read_answer(stream: &mut impl Read, most: usize) -> Result<Message> {
    let head = read_head(stream, |bytes| {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = parsed.parse(bytes)? else { return Ok(None) };
        let status = parsed.code.unwrap_or(0);
        let headers = fields(parsed.headers);
        Ok(Some((Message { status, headers, ..Message::default() }, length)))
    })?;
    let Some((mut message, rest)) = head else { return Err(unanswered().into()) };
    message.body = match message.status {
        // The bytes after the head belong to the new protocol.
        101 => rest,
        _ => read_body(stream, &message, rest, true, most)?,
    };
    Ok(message)
}

type Head = (Message, Vec<u8>);

fn read_head(
    stream: &mut impl Read,
    parse: impl Fn(&[u8]) -> Result<Option<(Message, usize)>>,
) -> Result<Option<Head>> {
    let mut bytes = Vec::new();
    loop {
        if let Some((message, length)) = parse(&bytes)? {
            return Ok(Some((message, bytes.split_off(length))));
        }
        if bytes.len() > HEAD {
            bail!("the head is too long");
        }
        if more(stream, &mut bytes)? == 0 {
            if bytes.is_empty() {
                return Ok(None);
            }
            bail!("closed in the middle of a head");
        }
    }
}

fn more(stream: &mut impl Read, bytes: &mut Vec<u8>) -> Result<usize> {
    let mut buffer = [0; 16 * 1024];
    let count = match stream.read(&mut buffer) {
        // The peer has ended the connection without close_notify.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => 0,
        other => other?,
    };
    bytes.extend_from_slice(&buffer[..count]);
    Ok(count)
}

fn too_long(most: usize) -> anyhow::Error {
    match most / 1024 {
        kib if kib < 1024 => anyhow!("the body is longer than {kib} KiB"),
        kib => anyhow!("the body is longer than {} MiB", kib / 1024),
    }
}

/// Reads a body. Without a length it ends with the connection, or is empty.
fn read_body(
    stream: &mut impl Read,
    message: &Message,
    mut bytes: Vec<u8>,
    until_close: bool,
    most: usize,
) -> Result<Vec<u8>> {
    if message.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        return read_chunks(stream, bytes, most);
    }
    let length = match message.header("content-length") {
        Some(length) => Some(length.parse::<usize>()?),
        None if until_close => None,
        None => return Ok(Vec::new()),
    };
    loop {
        if length.unwrap_or(bytes.len()) > most {
            return Err(too_long(most));
        }
        if length.is_some_and(|length| bytes.len() >= length) {
            break;
        }
        if more(stream, &mut bytes)? == 0 {
            match length {
                None => break,
                Some(_) => bail!("closed in the middle of a body"),
            }
        }
    }
    bytes.truncate(length.unwrap_or(usize::MAX));
    Ok(bytes)
}

fn read_chunks(stream: &mut impl Read, mut bytes: Vec<u8>, most: usize) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let parsed = httparse::parse_chunk_size(&bytes).map_err(|_| anyhow!("bad chunk"))?;
        if let httparse::Status::Complete((start, size)) = parsed {
            let size = usize::try_from(size).ok().filter(|size| *size <= most - body.len());
            let size = size.ok_or_else(|| too_long(most))?;
            while bytes.len() < start + size + 2 {
                if more(stream, &mut bytes)? == 0 {
                    bail!("closed in the middle of a chunk");
                }
            }
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&bytes[start..start + size]);
            bytes.drain(..start + size + 2);
        } else if bytes.len() > CHUNK_LINE {
            // Chunk extensions have no limit of their own.
            bail!("bad chunk");
        } else if more(stream, &mut bytes)? == 0 {
            bail!("closed in the middle of a chunk");
        }
    }
}

pub fn write_request(
    stream: &mut impl Write,
    method: &str,
    target: &str,
    body: &[u8],
) -> Result<()> {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: custom.socket\r\nUser-Agent: mote-host\r\n\
         Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    write(stream, head, body)
}

/// Writes a head and its body at once.
pub fn write(stream: &mut impl Write, head: String, body: &[u8]) -> Result<()> {
    let mut out = head.into_bytes();
    out.extend_from_slice(body);
    stream.write_all(&out)?;
    Ok(stream.flush()?)
}

pub fn write_answer(
    stream: &mut impl Write,
    status: u16,
    content_type: &str,
    extra: &[(&str, &str)],
    body: &[u8],
) -> Result<()> {
    let mut head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
        reason(status),
        body.len()
    );
    for (name, value) in extra {
        head += &format!("{name}: {value}\r\n");
    }
    write(stream, head + "Connection: close\r\n\r\n", body)
}

/// Returns the reason phrase of a status, as in Go.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        412 => "Precondition Failed",
        501 => "Not Implemented",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    const MOST: usize = 3;

    fn request(mut text: &[u8]) -> Result<Option<Message>> {
        read_request(&mut text, MOST)
    }

    #[test]
    fn reads_chunked_and_sized_bodies() {
        let chunked =
            b"PATCH /1.0?x=y HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";
        let read = request(chunked).unwrap().unwrap();
        assert_eq!((read.path(), read.body.as_slice()), ("/1.0", &b"abc"[..]));
        assert_eq!((read.parameter("x"), read.parameter("y")), (Some("y"), None));
        let mut sized: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nhiXX";
        let answer = read_answer(&mut sized, MOST).unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (403, &b"hi"[..]));
        let mut closed: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nabc";
        assert_eq!(read_answer(&mut closed, MOST).unwrap().body, b"abc");
        assert!(request(b"GET / HT").is_err());
        assert!(request(b"").unwrap().is_none());
    }

    #[test]
    fn limits_the_length_of_a_body() {
        let head = "PATCH / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (body, is_taken) in [
            ("3\r\nabc\r\n0\r\n\r\n", true),
            ("3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", false),
            ("ffffffffffffffff\r\n", false),
        ] {
            assert_eq!(request(format!("{head}{body}").as_bytes()).is_ok(), is_taken, "{body}");
        }
        let long = request(format!("{head}1;{}", "x".repeat(2 * CHUNK_LINE)).as_bytes());
        assert_eq!(long.unwrap_err().to_string(), "bad chunk");
        assert!(request(b"PATCH / HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd").is_err());
        assert!(read_answer(&mut &b"HTTP/1.1 200 OK\r\n\r\nabcd"[..], MOST).is_err());
        for (most, said) in [(limits::REQUEST, "256 KiB"), (limits::ANSWER, "8 MiB")] {
            assert!(too_long(most).to_string().ends_with(said));
        }
    }
}
