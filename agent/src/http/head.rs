//! Request and response heads. The only file that names httparse.
//!
//! A head is parsed again from its first byte each time more has come; the caller's buffer
//! ([`limits::HEAD`]) bounds what that can cost.

use httparse::{EMPTY_HEADER, Error, Header, Status};

use crate::limits;

/// Methods that mean something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// Anything else.
    Other,
}

impl Method {
    fn parse(text: &str) -> Self {
        match text {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }
}

/// How long the body is (RFC 9112 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// That many bytes.
    Length(u64),
    /// Chunked.
    Chunked,
    /// To the end of the connection; responses only.
    UntilClose,
}

/// Header fields, in the order they came.
#[derive(Clone, Debug)]
pub struct Headers<'b> {
    fields: heapless::Vec<(&'b str, &'b [u8]), { limits::HEADERS }>,
}

impl<'b> Headers<'b> {
    fn new(fields: &[Header<'b>]) -> Self {
        let fields = fields.iter().map(|field| (field.name, field.value)).collect();
        Self { fields }
    }

    /// The first field of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'b [u8]> {
        self.all(name).next()
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + '_ {
        self.fields.iter().copied()
    }

    fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'b [u8]> + 's {
        self.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Whether a comma-separated list, over all fields of that name, has this token.
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(|byte| *byte == b','))
            .any(|word| word.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// The body's length, and what contradicts itself is refused (request smuggling, RFC 9112 §6.3).
    fn framing(&self) -> Result<Option<Framing>, HeadError> {
        let mut length = None;
        for value in self.all("content-length") {
            let parsed = digits(value).ok_or(HeadError::BadFraming)?;
            if length.is_some_and(|known| known != parsed) {
                return Err(HeadError::BadFraming);
            }
            length = Some(parsed);
        }
        let mut codings = self.all("transfer-encoding");
        let coding = codings.next();
        if codings.next().is_some() || (coding.is_some() && length.is_some()) {
            return Err(HeadError::BadFraming);
        }
        match coding {
            Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Some(Framing::Chunked)),
            Some(_) => Err(HeadError::BadFraming),
            None => Ok(length.map(Framing::Length)),
        }
    }

    fn keep_alive(&self, http10: bool) -> bool {
        if http10 {
            self.has_token("connection", "keep-alive")
        } else {
            !self.has_token("connection", "close")
        }
    }
}

/// A length: digits only, no sign, no overflow.
fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    core::str::from_utf8(value).ok()?.parse().ok()
}

/// A request's head.
#[derive(Clone, Debug)]
pub struct Request<'b> {
    /// The method.
    pub method: Method,
    /// The method as it came.
    pub method_text: &'b str,
    /// The path, percent-encoded as it came; never empty.
    pub path: &'b str,
    /// What stands behind `?`.
    pub query: Option<&'b str>,
    /// How long the body is.
    pub framing: Framing,
    /// Whether the client wants the connection to go on.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// HTTP/1.0: knows no chunks.
    pub http10: bool,
    /// All fields.
    pub headers: Headers<'b>,
}

/// A response's head.
#[derive(Clone, Debug)]
pub struct Response<'b> {
    /// The status.
    pub status: u16,
    /// How long the body is.
    pub framing: Framing,
    /// Whether the connection goes on.
    pub keep_alive: bool,
    /// All fields.
    pub headers: Headers<'b>,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// Not HTTP.
    Malformed,
    /// Longer than [`limits::HEAD`].
    TooLong,
    /// More than [`limits::HEADERS`].
    TooManyHeaders,
    /// The body's length cannot be told for sure.
    BadFraming,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    BadVersion,
}

impl HeadError {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed | Self::BadFraming => 400,
            Self::TooLong | Self::TooManyHeaders => 431,
            Self::BadVersion => 505,
        }
    }

    /// What to say.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Malformed => "Malformed HTTP head",
            Self::TooLong => "HTTP head too long",
            Self::TooManyHeaders => "Too many HTTP headers",
            Self::BadFraming => "Contradictory or unknown body framing",
            Self::BadVersion => "HTTP version not supported",
        }
    }
}

impl From<Error> for HeadError {
    fn from(error: Error) -> Self {
        match error {
            Error::TooManyHeaders => Self::TooManyHeaders,
            Error::Version => Self::BadVersion,
            Error::HeaderName
            | Error::HeaderValue
            | Error::NewLine
            | Error::Status
            | Error::Token => Self::Malformed,
        }
    }
}

/// Parses a request's head; `None` while bytes are missing. Gives its length with it.
///
/// # Errors
/// [`HeadError`].
pub fn request(bytes: &[u8]) -> Result<Option<(Request<'_>, usize)>, HeadError> {
    let mut fields = [EMPTY_HEADER; limits::HEADERS];
    let mut parsed = httparse::Request::new(&mut fields);
    let Status::Complete(length) = parsed.parse(bytes)? else { return partial(bytes) };
    let (Some(method_text), Some(target), Some(version)) =
        (parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::Malformed);
    };
    let http10 = version == 0;
    let headers = Headers::new(parsed.headers);
    let (path, query) = split_target(target).ok_or(HeadError::Malformed)?;
    let framing = headers.framing()?.unwrap_or(Framing::None);
    if http10 && framing == Framing::Chunked {
        return Err(HeadError::BadFraming);
    }
    let framing = if framing == Framing::Length(0) { Framing::None } else { framing };
    let request = Request {
        method: Method::parse(method_text),
        method_text,
        path,
        query,
        framing,
        keep_alive: headers.keep_alive(http10),
        expect_continue: !http10 && headers.has_token("expect", "100-continue"),
        http10,
        headers,
    };
    Ok(Some((request, length)))
}

/// Origin form, or absolute form reduced to it (RFC 9112 §3.2).
fn split_target(target: &str) -> Option<(&str, Option<&str>)> {
    let origin = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find(['/', '?']).map_or("/", |at| rest.get(at..).unwrap_or("/"))
        }
        Some(_) | None => target,
    };
    let (path, query) = match origin.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (origin, None),
    };
    match path {
        "" if query.is_some() => Some(("/", query)),
        path if path.starts_with('/') => Some((path, query)),
        _ => None,
    }
}

/// Parses a response's head; `None` while bytes are missing. Gives its length with it.
///
/// # Errors
/// [`HeadError`].
pub fn response(bytes: &[u8], to: Method) -> Result<Option<(Response<'_>, usize)>, HeadError> {
    let mut fields = [EMPTY_HEADER; limits::HEADERS];
    let mut parsed = httparse::Response::new(&mut fields);
    let Status::Complete(length) = parsed.parse(bytes)? else { return partial(bytes) };
    let (Some(status), Some(version)) = (parsed.code, parsed.version) else {
        return Err(HeadError::Malformed);
    };
    let headers = Headers::new(parsed.headers);
    let bodiless = to == Method::Head || status < 200 || status == 204 || status == 304;
    let framing = headers.framing()?.unwrap_or(Framing::UntilClose);
    let framing = match framing {
        _ if bodiless => Framing::None,
        Framing::Length(0) => Framing::None,
        Framing::None | Framing::Length(_) | Framing::Chunked | Framing::UntilClose => framing,
    };
    let keep_alive = headers.keep_alive(version == 0) && framing != Framing::UntilClose;
    Ok(Some((Response { status, framing, keep_alive, headers }, length)))
}

fn partial<T>(bytes: &[u8]) -> Result<Option<T>, HeadError> {
    if bytes.len() >= limits::HEAD { Err(HeadError::TooLong) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, string::String};

    fn refused(head: &str) -> HeadError {
        request(head.as_bytes()).expect_err(head)
    }

    #[test]
    fn a_head_cut_at_every_byte_asks_for_more() {
        let whole = b"GET /1.0?a=b HTTP/1.1\r\nHost: lxd\r\nConnection: x, Close\r\n\r\n";
        for cut in 0..whole.len() {
            assert!(request(&whole[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        let mut trailing = whole.to_vec();
        trailing.extend(b"GET");
        let (request, length) = request(&trailing).unwrap().unwrap();
        assert_eq!((length, request.path, request.query), (whole.len(), "/1.0", Some("a=b")));
        assert_eq!((request.method, request.keep_alive), (Method::Get, false));
        assert_eq!(request.framing, Framing::None);
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Content-Length: 3\r\nContent-Length: 4",
            "Content-Length: +3",
            "Content-Length: 3, 3",
            "Content-Length: -0",
            "Content-Length: 18446744073709551616",
            "Content-Length:",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: xchunked",
        ] {
            let head = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
            assert_eq!(refused(&head), HeadError::BadFraming, "{fields}");
        }
        assert_eq!(
            refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            HeadError::BadFraming
        );
    }

    #[test]
    fn folded_and_broken_heads_are_refused() {
        for head in [
            "GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET nothing HTTP/1.1\r\n\r\n",
            "G\0T / HTTP/1.1\r\n\r\n",
            "\u{16}\u{3}\u{1}\0",
        ] {
            assert_eq!(refused(head), HeadError::Malformed, "{head:?}");
        }
        assert_eq!(refused("GET / HTTP/2.0\r\n\r\n"), HeadError::BadVersion);
    }

    #[test]
    fn limits_hold_at_their_edges() {
        let headers = |count| "A: b\r\n".repeat(count);
        let head = |count| format!("GET / HTTP/1.1\r\n{}\r\n", headers(count));
        assert!(request(head(limits::HEADERS).as_bytes()).is_ok());
        assert_eq!(refused(&head(limits::HEADERS + 1)), HeadError::TooManyHeaders);
        let long = format!("GET /{}", "x".repeat(limits::HEAD));
        assert!(request(&long.as_bytes()[..limits::HEAD - 1]).unwrap().is_none());
        assert_eq!(request(&long.as_bytes()[..limits::HEAD]).err(), Some(HeadError::TooLong));
    }

    #[test]
    fn absolute_form_is_reduced_to_its_path() {
        for (target, path) in
            [("http://lxd/1.0", "/1.0"), ("http://lxd", "/"), ("/a://b", "/a://b")]
        {
            let head = format!("GET {target} HTTP/1.1\r\n\r\n");
            assert_eq!(request(head.as_bytes()).unwrap().unwrap().0.path, path);
        }
    }

    #[test]
    fn http10_closes_unless_asked_not_to() {
        let keep = |fields: &str| -> bool {
            let head = String::from("GET / HTTP/1.0\r\n") + fields + "\r\n";
            request(head.as_bytes()).unwrap().unwrap().0.keep_alive
        };
        assert!(!keep(""));
        assert!(keep("Connection: Keep-Alive\r\n"));
    }

    #[test]
    fn responses_without_a_length_last_until_the_end() {
        let framing = |head: &str, to| response(head.as_bytes(), to).unwrap().unwrap().0.framing;
        let plain = "HTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(framing(plain, Method::Get), Framing::UntilClose);
        assert_eq!(framing(plain, Method::Head), Framing::None);
        assert_eq!(framing("HTTP/1.1 204 No\r\n\r\n", Method::Get), Framing::None);
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(framing(length, Method::Get), Framing::Length(5));
    }
}
