//! Heads as we write them. A value that could end its header early is refused.

use core::fmt::{Error, Result, Write};

/// How the receiver learns where a reply's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// `Content-Length`.
    Known(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The connection's end.
    UntilClose,
}

/// A reply's head.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: Option<&'a str>,
    /// The body's length.
    pub length: Length,
    /// Whether to say `Connection: close`.
    pub close: bool,
    /// Further fields.
    pub extra: &'a [(&'a str, &'a str)],
}

/// The chunk that ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes a reply's head.
///
/// # Errors
/// Those of `out`, or a field with a control character.
pub fn write_reply(out: &mut impl Write, head: &Head<'_>) -> Result {
    write!(out, "HTTP/1.1 {} {}\r\n", head.status, reason(head.status))?;
    if let Some(content_type) = head.content_type {
        field(out, "Content-Type", content_type)?;
    }
    match head.length {
        Length::Known(length) => write!(out, "Content-Length: {length}\r\n")?,
        Length::Chunked => out.write_str("Transfer-Encoding: chunked\r\n")?,
        Length::UntilClose => {}
    }
    fields(out, head.extra)?;
    end(out, head.close)
}

/// Writes the line before a chunk; `\r\n` must follow its data.
///
/// # Errors
/// Only those of `out`.
pub fn write_chunk_head(out: &mut impl Write, length: usize) -> Result {
    write!(out, "{length:x}\r\n")
}

/// A request's head.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// `Host`.
    pub host: &'a str,
    /// The body's length, if there is one.
    pub body: Option<u64>,
    /// Whether to say `Connection: close`.
    pub close: bool,
    /// Further fields.
    pub extra: &'a [(&'a str, &'a str)],
}

/// Writes a request's head.
///
/// # Errors
/// Those of `out`, or a field with a control character.
pub fn write_request(out: &mut impl Write, request: &RequestLine<'_>) -> Result {
    if !request.target.bytes().all(|byte| byte > b' ' && byte != 0x7f) {
        return Err(Error);
    }
    write!(out, "{} {} HTTP/1.1\r\n", request.method, request.target)?;
    field(out, "Host", request.host)?;
    if let Some(length) = request.body {
        write!(out, "Content-Length: {length}\r\n")?;
    }
    fields(out, request.extra)?;
    end(out, request.close)
}

fn end(out: &mut impl Write, close: bool) -> Result {
    out.write_str(if close { "Connection: close\r\n\r\n" } else { "\r\n" })
}

fn fields(out: &mut impl Write, all: &[(&str, &str)]) -> Result {
    all.iter().try_for_each(|(name, value)| field(out, name, value))
}

fn field(out: &mut impl Write, name: &str, value: &str) -> Result {
    let clean =
        |text: &str| text.bytes().all(|byte| (byte >= b' ' && byte != 0x7f) || byte == b'\t');
    if !clean(name) || !clean(value) {
        return Err(Error);
    }
    out.write_str(name)?;
    out.write_str(": ")?;
    out.write_str(value)?;
    out.write_str("\r\n")
}

/// The standard words for a status.
#[must_use]
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
    use std::string::String;

    #[test]
    fn heads_are_written_as_rfc_9112_has_them() {
        let mut out = String::new();
        let head = Head {
            status: 404,
            content_type: Some("text/plain"),
            length: Length::Known(10),
            close: true,
            extra: &[("ETag", "\"x\"")],
        };
        write_reply(&mut out, &head).unwrap();
        assert_eq!(
            out,
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\
             ETag: \"x\"\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_field_cannot_smuggle_another() {
        let mut out = String::new();
        for bad in ["a\r\nX: y", "a\nb", "a\0"] {
            let extra = [("A", bad)];
            let head = RequestLine {
                method: "GET",
                target: "/",
                host: "h",
                body: None,
                close: false,
                extra: &extra,
            };
            assert!(write_request(&mut out, &head).is_err(), "{bad:?}");
        }
        let target = RequestLine {
            method: "GET",
            target: "/ HTTP/1.1\r\n",
            host: "h",
            body: None,
            close: false,
            extra: &[],
        };
        assert!(write_request(&mut out, &target).is_err());
    }
}
