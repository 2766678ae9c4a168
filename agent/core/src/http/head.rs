//! Parses request and response heads. The only file that uses httparse.
//!
//! Each time more input arrives, parsing starts again from the first byte. Only the first
//! [`limits::HEAD`] bytes are read, which bounds the cost and makes the result independent of
//! fragmentation.
//!
//! A line of a head may end in a bare line feed (RFC 9112 §2.2): users type it, Go accepts it, and
//! the Go agents' event stream starts with it (P§4.3). That is safe in a head, where it can only
//! end a line; chunk framing (`body.rs`) is strict.

use httparse::{EMPTY_HEADER, Error, Header, Status};

use crate::decimal::digits;
use crate::limits;

/// Request methods of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
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

/// Framing of a body (RFC 9112 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    /// `Content-Length`, in bytes.
    Length(u64),
    Chunked,
    /// The body ends with the connection; in responses only.
    UntilClose,
}

/// Header fields in the order received.
#[derive(Clone, Debug)]
pub struct Headers<'b> {
    fields: heapless::Vec<(&'b str, &'b [u8]), { limits::HEADERS }>,
}

pub fn lists(list: &[u8], token: &str) -> bool {
    list.split(|byte| *byte == b',')
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

impl<'b> Headers<'b> {
    fn new(fields: &[Header<'b>]) -> Self {
        let fields = fields.iter().map(|field| (field.name, field.value)).collect();
        Self { fields }
    }

    pub fn get(&self, name: &str) -> Option<&'b [u8]> {
        self.all(name).next()
    }

    /// Returns the names and values of all fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + '_ {
        self.fields.iter().copied()
    }

    fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'b [u8]> + 's {
        self.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns whether a field with that name has this token in its comma-separated list.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name).any(|value| lists(value, token))
    }

    /// Returns the body's framing. Refuses contradictory fields (request smuggling, RFC 9112 §6.3),
    /// and chunks in HTTP/1.0, which does not have them (§6.1).
    fn framing(&self, http10: bool) -> Result<Option<Framing>, HeadError> {
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
            Some(_) if http10 => Err(HeadError::BadFraming),
            Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Some(Framing::Chunked)),
            Some(_) => Err(HeadError::BadFraming),
            None => Ok(length.map(Framing::Length)),
        }
    }

    /// Returns whether there is exactly one valid `Host` field (RFC 9112 §3.2), which HTTP/1.0 may
    /// omit. The agent ignores its value, which may be empty.
    fn has_valid_host(&self, http10: bool) -> bool {
        let mut hosts = self.all("host");
        match (hosts.next(), hosts.next()) {
            (None, _) => http10,
            (Some(host), None) => host.iter().all(|byte| is_host(*byte)),
            (Some(_), Some(_)) => false,
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

/// Returns whether a host and port may contain this byte (RFC 3986 §3.2.2), escapes (`%`) included.
fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "three unrelated facts that a head states")]
pub struct Request<'b> {
    pub method: Method,
    pub method_text: &'b str,
    /// The path as received, percent-encoded; never empty.
    pub path: &'b str,
    pub query: Option<&'b str>,
    pub framing: Framing,
    /// The client wants to keep the connection open.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// The version is HTTP/1.0, which has no chunks.
    pub http10: bool,
    pub headers: Headers<'b>,
}

#[derive(Clone, Debug)]
pub struct Response<'b> {
    pub status: u16,
    pub framing: Framing,
    /// The connection stays open after the body.
    pub keep_alive: bool,
    pub headers: Headers<'b>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    Malformed,
    /// The head is longer than [`limits::HEAD`].
    TooLong,
    /// The head has more than [`limits::HEADERS`] fields.
    TooManyHeaders,
    /// The body's framing is ambiguous or unknown.
    BadFraming,
    /// There is no `Host` in HTTP/1.1, or several, or an invalid one.
    BadHost,
    BadVersion,
}

impl HeadError {
    /// Returns the answer's status and text.
    pub fn reply(self) -> (u16, &'static str) {
        match self {
            Self::Malformed => (400, "Malformed HTTP head"),
            Self::TooLong => (431, "HTTP head too long"),
            Self::TooManyHeaders => (431, "Too many HTTP headers"),
            Self::BadFraming => (400, "Contradictory or unknown body framing"),
            Self::BadHost => (400, "Missing, repeated or malformed Host header"),
            Self::BadVersion => (505, "HTTP version not supported"),
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

/// Parses a request's head; returns it and its length in bytes, or `None` while bytes are missing.
/// Errors: any [`HeadError`].
pub fn request(bytes: &[u8]) -> Result<Option<(Request<'_>, usize)>, HeadError> {
    let mut fields = [EMPTY_HEADER; limits::HEADERS];
    let mut parsed = httparse::Request::new(&mut fields);
    let window = window(bytes);
    let Status::Complete(length) = parsed.parse(window)? else { return partial(window) };
    let (Some(method_text), Some(target), Some(version)) =
        (parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::Malformed);
    };
    let http10 = version == 0;
    let headers = Headers::new(parsed.headers);
    let (path, query) = split_target(target).ok_or(HeadError::Malformed)?;
    let framing = headers.framing(http10)?.unwrap_or(Framing::None);
    let framing = if framing == Framing::Length(0) { Framing::None } else { framing };
    if !headers.has_valid_host(http10) {
        return Err(HeadError::BadHost);
    }
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

/// Returns a target's path and query in origin form or absolute form (RFC 9112 §3.2).
fn split_target(target: &str) -> Option<(&str, Option<&str>)> {
    let is_scheme =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    let origin = match target.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => {
            rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or("/")
        }
        Some(_) | None if target.starts_with('/') => target,
        Some(_) | None => return None,
    };
    Some(match origin.split_once('?') {
        Some(("", query)) => ("/", Some(query)),
        Some((path, query)) => (path, Some(query)),
        None => (origin, None),
    })
}

/// Parses the head of the response to a request with method `to`; returns it and its length in
/// bytes, or `None` while bytes are missing.
/// Errors: any [`HeadError`] except [`HeadError::BadHost`].
pub fn response(bytes: &[u8], to: Method) -> Result<Option<(Response<'_>, usize)>, HeadError> {
    let mut fields = [EMPTY_HEADER; limits::HEADERS];
    let mut parsed = httparse::Response::new(&mut fields);
    let window = window(bytes);
    let Status::Complete(length) = parsed.parse(window)? else { return partial(window) };
    let (Some(status), Some(version)) = (parsed.code, parsed.version) else {
        return Err(HeadError::Malformed);
    };
    let headers = Headers::new(parsed.headers);
    let bodiless = to == Method::Head || status < 200 || status == 204 || status == 304;
    let http10 = version == 0;
    let framing = headers.framing(http10)?.unwrap_or(Framing::UntilClose);
    let framing = match framing {
        _ if bodiless => Framing::None,
        Framing::Length(0) => Framing::None,
        Framing::None | Framing::Length(_) | Framing::Chunked | Framing::UntilClose => framing,
    };
    let keep_alive = headers.keep_alive(http10) && framing != Framing::UntilClose;
    Ok(Some((Response { status, framing, keep_alive, headers }, length)))
}

fn window(bytes: &[u8]) -> &[u8] {
    bytes.get(..limits::HEAD).unwrap_or(bytes)
}

fn partial<T>(bytes: &[u8]) -> Result<Option<T>, HeadError> {
    if bytes.len() >= limits::HEAD { Err(HeadError::TooLong) } else { Ok(None) }
}

#[cfg(test)]
mod tests;
