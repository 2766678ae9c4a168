//! The one door to JSON (RFC 8259). Everything works on spans of the caller's bytes: what is only
//! forwarded is never rebuilt, so it arrives as it was sent.
//!
//! Depth is bounded and nothing recurses: a host or a guest cannot run us out of stack. There is no
//! typed decoding: `serde-json-core` skips unknown fields recursively, refuses surrogate pairs and
//! leaves escapes in place unless asked, and the few fields we read do not need it.

use core::fmt;

mod scan;
mod string;
mod write;

use scan::Cursor;
pub use string::{is_text, quote, text, unescape};
pub use write::Writer;

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// Not JSON at this offset.
    Syntax(usize),
    /// Nested deeper than [`crate::limits::JSON_DEPTH`].
    TooDeep,
    /// The document ends too early.
    Truncated,
    /// Something follows the document.
    Trailing(usize),
    /// JSON, but not of the shape asked for.
    Shape,
    /// The receiver of text had no room.
    TooLong,
}

impl fmt::Display for JsonError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(at) => write!(out, "not JSON at byte {at}"),
            Self::TooDeep => out.write_str("JSON nested too deeply"),
            Self::Truncated => out.write_str("JSON ends too early"),
            Self::Trailing(at) => write!(out, "something follows the JSON at byte {at}"),
            Self::Shape => out.write_str("JSON of another shape than expected"),
            Self::TooLong => out.write_str("a JSON text is too long"),
        }
    }
}

/// Checks a whole document: valid, UTF-8, bounded in depth, nothing behind it but white space.
///
/// # Errors
/// [`JsonError`].
pub fn check(bytes: &[u8]) -> Result<(), JsonError> {
    let mut cursor = Cursor::new(bytes);
    cursor.value()?;
    cursor.end()
}

/// The value of an object's member, as it stands there; the last one if there are several.
///
/// # Errors
/// [`JsonError`], also if `object` is not an object.
pub fn member<'j>(object: &'j [u8], key: &str) -> Result<Option<&'j [u8]>, JsonError> {
    check(object)?;
    if Cursor::new(object).peek() != Some(b'{') {
        return Err(JsonError::Shape);
    }
    Ok(members(object).filter(|(name, _)| is_text(name, key)).last().map(|(_, value)| value))
}

/// The members of an object that [`check`] has passed: raw name (with its quotes), raw value.
/// Nothing for anything else.
pub fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut cursor = Cursor::new(object);
    let mut open = cursor.eat(b'{');
    core::iter::from_fn(move || {
        if !core::mem::replace(&mut open, false) || cursor.peek() == Some(b'}') {
            return None;
        }
        let name = cursor.value().ok()?;
        if !cursor.eat(b':') {
            return None;
        }
        let value = cursor.value().ok()?;
        open = cursor.eat(b',');
        Some((name, value))
    })
}

/// The elements of an array that [`check`] has passed, as they stand there. Nothing for anything
/// else.
pub fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut cursor = Cursor::new(array);
    let mut open = cursor.eat(b'[');
    core::iter::from_fn(move || {
        if !core::mem::replace(&mut open, false) || cursor.peek() == Some(b']') {
            return None;
        }
        let value = cursor.value().ok()?;
        open = cursor.eat(b',');
        Some(value)
    })
}

/// What kind of answer an envelope is (P§4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The answer is here.
    Sync,
    /// An operation was begun.
    Async,
    /// It failed.
    Error,
}

/// The fields of an envelope that matter to us; raw JSON spans.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'j> {
    /// `type`.
    pub kind: Kind,
    /// `error_code`, 0 if there is none.
    pub error_code: u16,
    /// `error`, a raw string.
    pub error: Option<&'j [u8]>,
    /// `metadata`; `null` if there is none.
    pub metadata: &'j [u8],
}

/// Reads a host's answer.
///
/// # Errors
/// [`JsonError`] if it is not JSON or no envelope.
pub fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, JsonError> {
    check(bytes)?;
    let (mut kind, mut error_code, mut error, mut metadata) = (None, 0, None, b"null".as_slice());
    for (name, value) in members(bytes) {
        if is_text(name, "type") {
            kind = [("sync", Kind::Sync), ("async", Kind::Async), ("error", Kind::Error)]
                .into_iter()
                .find_map(|(word, kind)| is_text(value, word).then_some(kind));
        } else if is_text(name, "error_code") {
            error_code = number(value).unwrap_or(0);
        } else if is_text(name, "error") {
            error = Some(value);
        } else if is_text(name, "metadata") {
            metadata = value;
        }
    }
    let kind = kind.ok_or(JsonError::Shape)?;
    Ok(Envelope { kind, error_code, error, metadata })
}

fn number(raw: &[u8]) -> Option<u16> {
    core::str::from_utf8(raw).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
