//! JSON strings: what they stand for, and how they are written.

use core::fmt;

use super::JsonError;

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

/// The byte that `\\` and this letter stand for.
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

/// Four hex digits, and what follows them.
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
