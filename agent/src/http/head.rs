//! Request and response heads. The only file that names httparse.
//!
//! A head is parsed again from its first byte each time more has come; only the first
//! [`limits::HEAD`] bytes are ever looked at, which bounds what that can cost and makes the verdict
//! the same however the bytes were cut. httparse would let a line end in a bare line feed; we do
//! not: whoever stands before us may count such lines differently.

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
    /// HTTP/1.0 knows no chunks, so one that claims them is broken (§6.1).
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
#[expect(clippy::struct_excessive_bools, reason = "three unrelated facts that a head states")]
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
    let window = window(bytes);
    let Status::Complete(length) = parsed.parse(window)? else { return partial(window) };
    lines_are_whole(window, length)?;
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

/// Parses a response's head; `None` while bytes are missing. Gives its length with it.
///
/// # Errors
/// [`HeadError`].
pub fn response(bytes: &[u8], to: Method) -> Result<Option<(Response<'_>, usize)>, HeadError> {
    let mut fields = [EMPTY_HEADER; limits::HEADERS];
    let mut parsed = httparse::Response::new(&mut fields);
    let window = window(bytes);
    let Status::Complete(length) = parsed.parse(window)? else { return partial(window) };
    lines_are_whole(window, length)?;
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

/// What is looked at.
fn window(bytes: &[u8]) -> &[u8] {
    bytes.get(..limits::HEAD).unwrap_or(bytes)
}

fn lines_are_whole(bytes: &[u8], length: usize) -> Result<(), HeadError> {
    let head = bytes.get(..length).unwrap_or(bytes);
    let mut before = None;
    for byte in head {
        if *byte == b'\n' && before != Some(b'\r') {
            return Err(HeadError::Malformed);
        }
        before = Some(*byte);
    }
    Ok(())
}

fn partial<T>(bytes: &[u8]) -> Result<Option<T>, HeadError> {
    if bytes.len() >= limits::HEAD { Err(HeadError::TooLong) } else { Ok(None) }
}

#[cfg(test)]
mod tests;
