//! Writes heads of requests and replies. Refuses a header that could end its own line.

use core::fmt::{Error, Result, Write};

use super::head::Request;

/// How the reply marks its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// `Content-Length`, in bytes.
    Known(u64),
    Chunked,
    /// The end of the connection; implies `Connection: close`.
    UntilClose,
    /// No body, and no field with its length (101, 204).
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Close the connection, with `Connection: close`.
    Close,
    /// Keep it open, with `Connection: keep-alive`: HTTP/1.0 closes by default (RFC 9112 §9.3).
    Explicit,
    /// Keep it open without a field: the default of HTTP/1.1.
    Implied,
}

impl Persistence {
    pub fn of(request: &Request<'_>) -> Self {
        match (request.keep_alive, request.http10) {
            (false, _) => Self::Close,
            (true, true) => Self::Explicit,
            (true, false) => Self::Implied,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub status: u16,
    pub content_type: Option<&'a str>,
    /// How the body's end is marked.
    pub length: Length,
    pub persistence: Persistence,
    /// Further fields: name, value.
    pub extra: &'a [(&'a str, &'a str)],
}

/// Last chunk and empty trailer of a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes a reply's head.
/// Errors: any of `out`; also if a field has a control character or an invalid name.
pub fn write_reply(out: &mut impl Write, head: &Head<'_>) -> Result {
    write!(out, "HTTP/1.1 {} {}\r\n", head.status, reason(head.status))?;
    if let Some(content_type) = head.content_type {
        field(out, "Content-Type", content_type)?;
    }
    match head.length {
        Length::Known(length) => write!(out, "Content-Length: {length}\r\n")?,
        Length::Chunked => out.write_str("Transfer-Encoding: chunked\r\n")?,
        Length::UntilClose | Length::None => {}
    }
    fields(out, head.extra)?;
    let until_close = head.length == Length::UntilClose;
    end(out, if until_close { Persistence::Close } else { head.persistence })
}

/// Writes the size line of a chunk of `length` bytes; `\r\n` must follow its data.
/// Errors: only those of `out`.
pub fn write_chunk_head(out: &mut impl Write, length: usize) -> Result {
    write!(out, "{length:x}\r\n")
}

#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub host: &'a str,
    /// The body's length in bytes, if there is a body.
    pub body: Option<u64>,
    pub close: bool,
    /// Further fields: name, value.
    pub extra: &'a [(&'a str, &'a str)],
}

/// Writes a request's head. Errors: any of `out`; also if a field has a control character or an
/// invalid name, the method is not a token, or the target is not a path or has a space or control
/// character.
pub fn write_request(out: &mut impl Write, request: &RequestLine<'_>) -> Result {
    let whole = request.target.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    if !whole || !request.target.starts_with('/') || !is_token(request.method) {
        return Err(Error);
    }
    write!(out, "{} {} HTTP/1.1\r\n", request.method, request.target)?;
    field(out, "Host", request.host)?;
    if let Some(length) = request.body {
        write!(out, "Content-Length: {length}\r\n")?;
    }
    fields(out, request.extra)?;
    end(out, if request.close { Persistence::Close } else { Persistence::Implied })
}

fn end(out: &mut impl Write, persistence: Persistence) -> Result {
    out.write_str(match persistence {
        Persistence::Close => "Connection: close\r\n\r\n",
        Persistence::Explicit => "Connection: keep-alive\r\n\r\n",
        Persistence::Implied => "\r\n",
    })
}

fn fields(out: &mut impl Write, all: &[(&str, &str)]) -> Result {
    all.iter().try_for_each(|(name, value)| field(out, name, value))
}

fn field(out: &mut impl Write, name: &str, value: &str) -> Result {
    let clean = value.bytes().all(|byte| (byte >= b' ' && byte != 0x7f) || byte == b'\t');
    if !clean || !is_token(name) {
        return Err(Error);
    }
    out.write_str(name)?;
    out.write_str(": ")?;
    out.write_str(value)?;
    out.write_str("\r\n")
}

/// Returns whether a text is a token: a method or a field name (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        416 => "Requested Range Not Satisfiable",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head;

    fn written(head: &Head<'_>) -> String {
        let mut out = String::new();
        write_reply(&mut out, head).unwrap();
        out
    }

    const PLAIN: Head<'_> = Head {
        status: 200,
        content_type: None,
        length: Length::None,
        persistence: Persistence::Implied,
        extra: &[],
    };

    #[test]
    fn keep_alive_is_explicit_for_http10_only() {
        for (version, fields, line) in [
            ("1.0", "", "Connection: close\r\n"),
            ("1.0", "Connection: Keep-Alive\r\n", "Connection: keep-alive\r\n"),
            ("1.1", "", ""),
            ("1.1", "Connection: keep-alive\r\n", ""),
            ("1.1", "Connection: closed\r\n", ""),
            ("1.1", "Connection: close\r\n", "Connection: close\r\n"),
            ("1.1", "Connection: Upgrade\r\nconnection: foo ,CLOSE\r\n", "Connection: close\r\n"),
        ] {
            let text = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
            let (request, _) = head::request(text.as_bytes()).unwrap().unwrap();
            let head = Head { persistence: Persistence::of(&request), ..PLAIN };
            assert_eq!(written(&head), format!("HTTP/1.1 200 OK\r\n{line}\r\n"), "{text}");
        }
    }

    #[test]
    fn every_status_has_a_valid_reason_phrase() {
        for status in 0..=u16::MAX {
            assert!(is_token(&reason(status).replace(' ', "-")), "{status}");
        }
        assert_eq!((reason(501), reason(299)), ("Not Implemented", "Status"));
    }
}
