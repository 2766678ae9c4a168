//! Decodes and encodes JSON strings.

use core::fmt;

use super::JsonError;

/// Maximum length of an escape, in bytes: a surrogate pair.
const ESCAPE: usize = "\\ud800\\udc00".len();

/// Returns whether a raw string, with its quotes, encodes this text.
pub(super) fn is_text(raw: &str, text: &str) -> bool {
    // Fast path for up to a million names: most differ in their first letter.
    let (first, wanted) = (raw.as_bytes().get(1), text.as_bytes().first());
    if wanted.is_some() && first != wanted && first != Some(&b'\\') {
        return false;
    }
    let mut rest = text;
    let same = unescape(raw, &mut |piece| {
        rest = rest.strip_prefix(piece).ok_or(JsonError::Shape)?;
        Ok(())
    });
    same.is_ok() && rest.is_empty()
}

/// Passes the decoded text of a raw string (with its quotes) to `sink`, piece by piece.
pub(super) fn unescape(
    raw: &str,
    sink: &mut dyn FnMut(&str) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let mut rest = inner.ok_or(JsonError::Shape)?;
    loop {
        let Some((text, escaped)) = rest.split_once('\\') else {
            return if rest.is_empty() { Ok(()) } else { sink(rest) };
        };
        if !text.is_empty() {
            sink(text)?;
        }
        let (character, after) = character(escaped).ok_or(JsonError::Shape)?;
        sink(character.encode_utf8(&mut [0; 4]))?;
        rest = after;
    }
}

/// Decodes a raw string (with its quotes) in place, and returns the length of its text, which is
/// never longer. Returns `None` if it is not a string; its bytes may then have changed.
pub fn unescape_within(raw: &mut [u8]) -> Option<usize> {
    let end = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?.len() + 1;
    let (mut from, mut to) = (1, 0);
    while from < end {
        let rest = raw.get(from..end)?;
        let run = rest.iter().position(|byte| *byte == b'\\').unwrap_or(rest.len());
        raw.copy_within(from..from + run, to);
        (from, to) = (from + run, to + run);
        if from == end {
            break;
        }
        // Text that is cut after the longest escape may end within a character.
        let escape = raw.get(from + 1..end.min(from + ESCAPE))?;
        let escape = escape.utf8_chunks().next()?.valid();
        let (character, after) = character(escape)?;
        from += 1 + escape.len() - after.len();
        let mut utf8 = [0; 4];
        let utf8 = character.encode_utf8(&mut utf8).as_bytes();
        raw.get_mut(to..to + utf8.len())?.copy_from_slice(utf8);
        to += utf8.len();
    }
    Some(to)
}

/// Decodes an escape without its backslash; returns its character and the rest. A surrogate pair is
/// one character; a lone surrogate becomes U+FFFD, as in Go.
fn character(escaped: &str) -> Option<(char, &str)> {
    let Some(after) = escaped.strip_prefix('u') else {
        let letter = *escaped.as_bytes().first()?;
        return Some((char::from(simple_escape(letter)?), escaped.get(1..)?));
    };
    let (unit, rest) = hex4(after)?;
    if (0xd800..0xdc00).contains(&unit)
        && let Some((low, rest)) = rest.strip_prefix("\\u").and_then(hex4)
        && (0xdc00..0xe000).contains(&low)
    {
        let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        return Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), rest));
    }
    Some((char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER), rest))
}

/// Returns the byte that a backslash and this letter encode.
pub(super) fn simple_escape(letter: u8) -> Option<u8> {
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

/// Returns the value of four hex digits, and the rest.
fn hex4(text: &str) -> Option<(u32, &str)> {
    let mut value = 0;
    for digit in text.as_bytes().first_chunk::<4>()? {
        value = value << 4 | char::from(*digit).to_digit(16)?;
    }
    Some((value, text.get(4..)?))
}

/// Writes `text` with JSON escapes, without quotes. Each run that needs no escapes is one write.
#[inline(never)] // its size
pub(super) fn escape(out: &mut dyn fmt::Write, text: &str) -> fmt::Result {
    let mut rest = text;
    loop {
        let escaped = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        let plain = rest.bytes().position(escaped).unwrap_or(rest.len());
        let (run, special) = rest.split_at(plain);
        out.write_str(run)?;
        let Some(byte) = special.bytes().next() else { return Ok(()) };
        match byte {
            b'"' => out.write_str("\\\"")?,
            b'\\' => out.write_str("\\\\")?,
            b'\n' => out.write_str("\\n")?,
            b'\r' => out.write_str("\\r")?,
            b'\t' => out.write_str("\\t")?,
            control => write!(out, "\\u{control:04x}")?,
        }
        rest = special.get(1..).unwrap_or_default();
    }
}
