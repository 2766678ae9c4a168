//! The one door to JSON (RFC 8259). Everything works on spans of the caller's bytes: what is only
//! forwarded is never rebuilt, so it arrives as it was sent.
//!
//! Depth is bounded and nothing recurses: a host or a guest cannot run us out of stack. Typed
//! decoding (`serde-json-core`, which skips unknown fields recursively and refuses surrogate pairs)
//! is used only after the check here has passed.

use core::fmt;

use crate::limits;

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// Not JSON at this offset.
    Syntax(usize),
    /// Nested deeper than [`limits::JSON_DEPTH`].
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
    let mut cursor = Cursor { bytes, at: 0 };
    cursor.value()?;
    cursor.space();
    if cursor.at < bytes.len() { Err(JsonError::Trailing(cursor.at)) } else { Ok(()) }
}

/// The value of an object's member, as it stands there; the last one if there are several.
///
/// # Errors
/// [`JsonError`], also if `object` is not an object.
pub fn member<'j>(object: &'j [u8], key: &str) -> Result<Option<&'j [u8]>, JsonError> {
    check(object)?;
    if first(object) != Some(b'{') {
        return Err(JsonError::Shape);
    }
    Ok(members(object).filter(|(name, _)| is_text(name, key)).last().map(|(_, value)| value))
}

/// The members of an object that [`check`] has passed: raw name (with its quotes), raw value.
/// Nothing for anything else.
pub fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut cursor = Cursor { bytes: object, at: 0 };
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
    let mut cursor = Cursor { bytes: array, at: 0 };
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

/// Whether a raw string, with its quotes, stands for this text.
#[must_use]
pub fn is_text(raw: &[u8], text: &str) -> bool {
    let mut rest = text.as_bytes();
    let same = unescape(raw, |piece| {
        rest = rest.strip_prefix(piece).ok_or(JsonError::Shape)?;
        Ok(())
    });
    same.is_ok() && rest.is_empty()
}

/// Gives the text that a raw string (with its quotes) stands for, piece by piece. A lone surrogate
/// becomes U+FFFD, as Go makes it.
///
/// # Errors
/// [`JsonError::Shape`] if it is not a string; the sink's own.
pub fn unescape(
    raw: &[u8],
    mut sink: impl FnMut(&[u8]) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    let inner = raw.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let mut rest = inner.ok_or(JsonError::Shape)?;
    while !rest.is_empty() {
        let plain = rest.iter().position(|byte| *byte == b'\\').unwrap_or(rest.len());
        let (text, escaped) = rest.split_at(plain);
        if !text.is_empty() {
            sink(text)?;
        }
        rest = match escaped {
            [] => escaped,
            [_, b'u', after @ ..] => {
                let (character, after) = unicode(after)?;
                sink(character.encode_utf8(&mut [0; 4]).as_bytes())?;
                after
            }
            [_, letter, after @ ..] => {
                let byte = simple_escape(*letter).ok_or(JsonError::Shape)?;
                sink(&[byte])?;
                after
            }
            [_] => return Err(JsonError::Shape),
        };
    }
    Ok(())
}

fn simple_escape(letter: u8) -> Option<u8> {
    Some(match letter {
        b'"' | b'\\' | b'/' => letter,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

/// The character of `\u` and what follows it, a surrogate pair counting as one.
fn unicode(after: &[u8]) -> Result<(char, &[u8]), JsonError> {
    let (unit, rest) = hex4(after).ok_or(JsonError::Shape)?;
    if (0xd800..0xdc00).contains(&unit)
        && let Some((low, rest)) = rest.strip_prefix(b"\\u").and_then(hex4)
        && (0xdc00..0xe000).contains(&low)
    {
        let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        return Ok((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), rest));
    }
    Ok((char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER), rest))
}

fn hex4(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = bytes.split_first_chunk::<4>()?;
    let mut value = 0;
    for digit in digits {
        value = value << 4 | char::from(*digit).to_digit(16)?;
    }
    Some((value, rest))
}

/// Copies the text of a raw string into `out`.
///
/// # Errors
/// [`JsonError::Shape`] if it is not a string, [`JsonError::TooLong`] if it does not fit.
pub fn text<'o>(raw: &[u8], out: &'o mut [u8]) -> Result<&'o str, JsonError> {
    let mut length = 0;
    unescape(raw, |piece| {
        let end = length + piece.len();
        out.get_mut(length..end).ok_or(JsonError::TooLong)?.copy_from_slice(piece);
        length = end;
        Ok(())
    })?;
    let text = out.get(..length).unwrap_or_default();
    core::str::from_utf8(text).map_err(|_| JsonError::Shape)
}

/// Decodes a small typed document into a struct of owned fields.
///
/// # Errors
/// [`JsonError`]; [`JsonError::Shape`] for every field that does not fit.
pub fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    check(bytes)?;
    let mut scratch = [0; 256];
    match serde_json_core::from_slice_escaped(bytes, &mut scratch) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(JsonError::Shape),
    }
}

/// Writes `text` as a JSON string.
///
/// # Errors
/// Only those of `out`.
pub fn quote(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            control if u32::from(control) < 0x20 => write!(out, "\\u{:04x}", u32::from(control))?,
            plain => out.write_char(plain)?,
        }
    }
    out.write_char('"')
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

fn first(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|byte| !is_space(*byte))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// A place in a document.
struct Cursor<'j> {
    bytes: &'j [u8],
    at: usize,
}

/// What is expected next; the depth is how many brackets are open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    /// Just behind `[`: a value or `]`.
    FirstValue,
    /// Just behind `{`: a name or `}`.
    FirstName,
    Name,
    /// Behind a value: `,` or the closing bracket.
    Next,
}

impl<'j> Cursor<'j> {
    fn space(&mut self) {
        while self.bytes.get(self.at).copied().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.bytes.get(self.at).copied()
    }

    /// Takes this byte, if it is next.
    fn eat(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    fn syntax<T>(&self) -> Result<T, JsonError> {
        Err(if self.at < self.bytes.len() {
            JsonError::Syntax(self.at)
        } else {
            JsonError::Truncated
        })
    }

    /// Takes one value of any kind and gives its span.
    fn value(&mut self) -> Result<&'j [u8], JsonError> {
        self.space();
        let start = self.at;
        // Which brackets are open: an object's is 1. JSON_DEPTH of them fit.
        let (mut brackets, mut depth) = (0u64, 0);
        let mut expect = Expect::Value;
        loop {
            let Some(byte) = self.peek() else { return Err(JsonError::Truncated) };
            let in_object = brackets & 1 == 1;
            match (expect, byte) {
                (Expect::Value | Expect::FirstValue, b'{' | b'[') => {
                    if depth >= limits::JSON_DEPTH.min(63) {
                        return Err(JsonError::TooDeep);
                    }
                    depth += 1;
                    brackets = brackets << 1 | u64::from(byte == b'{');
                    self.at += 1;
                    expect = if byte == b'{' { Expect::FirstName } else { Expect::FirstValue };
                    continue;
                }
                (Expect::FirstName | Expect::Next, b'}') if in_object => self.at += 1,
                (Expect::FirstValue | Expect::Next, b']') if !in_object && depth > 0 => {
                    self.at += 1;
                }
                (Expect::FirstName | Expect::Name, b'"') => {
                    self.string()?;
                    if !self.eat(b':') {
                        return self.syntax();
                    }
                    expect = Expect::Value;
                    continue;
                }
                (Expect::Next, b',') => {
                    self.at += 1;
                    expect = if in_object { Expect::Name } else { Expect::Value };
                    continue;
                }
                (Expect::Value | Expect::FirstValue, _) => {
                    self.scalar(byte)?;
                    if depth == 0 {
                        break;
                    }
                    expect = Expect::Next;
                    continue;
                }
                (Expect::FirstName | Expect::Name | Expect::Next, _) => return self.syntax(),
            }
            // A bracket was closed.
            brackets >>= 1;
            depth -= 1;
            expect = Expect::Next;
            if depth == 0 {
                break;
            }
        }
        Ok(self.bytes.get(start..self.at).unwrap_or_default())
    }

    fn scalar(&mut self, byte: u8) -> Result<(), JsonError> {
        match byte {
            b'"' => self.string(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), JsonError> {
        for byte in word {
            if self.bytes.get(self.at) != Some(byte) {
                return self.syntax();
            }
            self.at += 1;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { self.syntax() } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.bytes.get(self.at) {
                None => return Err(JsonError::Truncated),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    match self.bytes.get(self.at) {
                        Some(b'u') => {
                            let after = self.bytes.get(self.at + 1..).unwrap_or_default();
                            if hex4(after).is_none() {
                                return self.syntax();
                            }
                            self.at += 5;
                        }
                        Some(letter) if simple_escape(*letter).is_some() => self.at += 1,
                        Some(_) | None => return self.syntax(),
                    }
                }
                Some(control) if *control < 0x20 => return self.syntax(),
                Some(_) => self.at += 1,
            }
        }
        let text = self.bytes.get(start..self.at).unwrap_or_default();
        if let Err(error) = core::str::from_utf8(text) {
            return Err(JsonError::Syntax(start + error.valid_up_to()));
        }
        self.at += 1;
        Ok(())
    }
}
