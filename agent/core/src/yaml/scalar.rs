//! Scalars: reads each style from a document, and decodes its text (YAML 1.2 §7.3, §8.1).

#[cfg(feature = "alloc")]
use alloc::string::String;

use super::cursor::{Cursor, is_flow};
use super::{Why, YamlError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    /// Literal or folded (`|`, `>`); its text is not decoded.
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar<'y> {
    pub(super) raw: &'y str,
    pub(super) style: Style,
}

/// White space, and the ends of lines.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Callback that takes a text piece by piece.
type Sink<'s> = &'s mut dyn FnMut(&str);

impl<'y> Scalar<'y> {
    /// An omitted value.
    pub(super) const EMPTY: Self = Self { raw: "", style: Style::Plain };

    pub(super) fn style(&self) -> Style {
        self.style
    }

    pub fn is_null(&self) -> bool {
        self.style == Style::Plain && matches!(self.raw, "" | "~" | "null" | "Null" | "NULL")
    }

    /// Returns the value as a boolean, in any spelling of YAML 1.1, like the hosts' parser.
    pub fn boolean(&self) -> Option<bool> {
        if self.style != Style::Plain {
            return None;
        }
        match self.raw {
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
                Some(true)
            }
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n"
            | "N" => Some(false),
            _ => None,
        }
    }

    /// Returns true for a block scalar, whose text is not available.
    pub fn is_block(&self) -> bool {
        self.style == Style::Block
    }

    pub fn is(&self, text: &str) -> bool {
        let mut rest = Some(text);
        self.text(|piece| rest = rest.and_then(|rest| rest.strip_prefix(piece)));
        rest == Some("")
    }

    /// Returns the text; empty for a block scalar.
    #[cfg(feature = "alloc")]
    pub fn string(&self) -> String {
        let mut text = String::new();
        self.text(|piece| text.push_str(piece));
        text
    }

    /// Passes the text to `sink`, piece by piece; nothing for a block scalar.
    pub fn text(&self, mut sink: impl FnMut(&str)) {
        self.pieces(&mut sink);
    }

    #[inline(never)] // its size
    fn pieces(&self, sink: Sink<'_>) {
        let mut rest = match self.style {
            Style::Plain | Style::Single | Style::Double => self.raw,
            Style::Block => "",
        };
        while !rest.is_empty() {
            let special = |byte: u8| match byte {
                b' ' | b'\t' | b'\r' | b'\n' => true,
                b'\'' => self.style == Style::Single,
                b'\\' => self.style == Style::Double,
                _ => false,
            };
            let plain = rest.bytes().position(special).unwrap_or(rest.len());
            let (text, after) = rest.split_at(plain);
            if !text.is_empty() {
                sink(text);
            }
            rest = match after.as_bytes().first() {
                None => "",
                // Two single quotes stand for one.
                Some(b'\'') => {
                    sink("'");
                    after.get(2..).unwrap_or_default()
                }
                Some(b'\\') => escape(after, sink),
                Some(_) => white(after, sink),
            };
        }
    }
}

/// Decodes white space: kept within a line, folded around a line's end (§6.5).
fn white<'y>(after: &'y str, sink: Sink<'_>) -> &'y str {
    let next = after.trim_start_matches([' ', '\t', '\r']);
    if !next.starts_with('\n') {
        let (run, rest) = after.split_at(after.len() - next.len());
        sink(run);
        return rest;
    }
    let rest = next.trim_start_matches(BLANKS);
    let (run, rest) = next.split_at(next.len() - rest.len());
    match run.bytes().filter(|byte| *byte == b'\n').count() {
        1 => sink(" "),
        ends => (1..ends).for_each(|_| sink("\n")),
    }
    rest
}

/// Decodes an escape in double quotes, which was checked when it was read.
fn escape<'y>(after: &'y str, sink: Sink<'_>) -> &'y str {
    let Some(letter) = after.as_bytes().get(1).copied() else { return "" };
    let rest = after.get(2..).unwrap_or_default();
    if matches!(letter, b'\r' | b'\n') {
        // An escaped line end joins two lines; empty lines after it are kept.
        let rest = if letter == b'\r' { rest.get(1..).unwrap_or_default() } else { rest };
        let next = rest.trim_start_matches(BLANKS);
        let (run, next) = rest.split_at(rest.len() - next.len());
        run.bytes().filter(|byte| *byte == b'\n').for_each(|_| sink("\n"));
        return next;
    }
    let digits = escape_digits(letter);
    let code = if digits > 0 {
        rest.get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok())
    } else {
        escaped(letter)
    };
    if let Some(character) = code.and_then(char::from_u32) {
        sink(character.encode_utf8(&mut [0; 4]));
    }
    rest.get(digits..).unwrap_or_default()
}

/// Returns the number of hex digits after `\` and this letter.
fn escape_digits(letter: u8) -> usize {
    match letter {
        b'x' => 2,
        b'u' => 4,
        b'U' => 8,
        _ => 0,
    }
}

/// Returns the character that `\` and this letter encode (§5.7).
fn escaped(letter: u8) -> Option<u32> {
    Some(match letter {
        b'0' => 0,
        b'a' => 7,
        b'b' => 8,
        b't' | b'\t' => 9,
        b'n' => 10,
        b'v' => 11,
        b'f' => 12,
        b'r' => 13,
        b'e' => 27,
        b' ' | b'"' | b'/' | b'\\' => u32::from(letter),
        b'N' => 0x85,
        b'_' => 0xa0,
        b'L' => 0x2028,
        b'P' => 0x2029,
        _ => return None,
    })
}

impl<'y> Cursor<'y> {
    /// Reads a plain scalar; `min` as for [`Cursor::scalar`].
    pub(super) fn plain(
        &mut self,
        min: Option<usize>,
        in_flow: bool,
    ) -> Result<Scalar<'y>, YamlError> {
        let begin = self.at();
        let mut end = *self;
        loop {
            // Read one line, and set `end` after its last word.
            loop {
                match self.byte() {
                    None | Some(b'\n') => break,
                    Some(b' ' | b'\r') => {
                        self.spaces();
                        if self.byte() == Some(b'#') {
                            break;
                        }
                        continue;
                    }
                    Some(b'\t') => return Err(self.error(Why::Unsupported("a tab"))),
                    Some(b':') if self.at_colon(in_flow) => break,
                    byte if in_flow && is_flow(byte) => break,
                    Some(_) => self.advance(1),
                }
                end = *self;
            }
            let Some(min) = min.filter(|_| self.byte() == Some(b'\n')) else { break };
            while self.byte() == Some(b'\n') {
                self.newline();
                self.spaces();
            }
            let over = self.column() < min || self.ended() || self.byte() == Some(b'#');
            if over || (self.at_colon(in_flow) || (in_flow && is_flow(self.byte()))) {
                break;
            }
            if in_flow {
                // Parsers differ about a line that begins with an indicator.
                self.check_plain(true)?;
            }
        }
        *self = end;
        Ok(Scalar { raw: end.since(begin), style: Style::Plain })
    }

    /// Reads a quoted scalar. Its lines after the first must be indented by `min` or empty.
    pub(super) fn quoted(&mut self, style: Style, min: usize) -> Result<Scalar<'y>, YamlError> {
        let open = *self;
        self.advance(1);
        let begin = self.at();
        loop {
            match self.byte() {
                None => return Err(open.error(Why::Truncated)),
                Some(b'\'') if style == Style::Single => {
                    if self.ahead(1) != Some(b'\'') {
                        break;
                    }
                    self.advance(2);
                }
                Some(b'"') if style == Style::Double => break,
                Some(b'\\') if style == Style::Double => self.escape()?,
                Some(b'\n') => self.quoted_line(min)?,
                Some(_) => self.advance(1),
            }
        }
        let raw = self.since(begin);
        self.advance(1);
        Ok(Scalar { raw, style })
    }

    fn quoted_line(&mut self, min: usize) -> Result<(), YamlError> {
        self.newline();
        if self.ended() {
            return Err(self.error(Why::Truncated));
        }
        self.spaces();
        match self.byte() {
            Some(b'\t') => Err(self.error(Why::Unsupported("a tab"))),
            Some(b'\n') => Ok(()),
            _ if self.column() < min => Err(self.error(Why::Indent)),
            _ => Ok(()),
        }
    }

    fn escape(&mut self) -> Result<(), YamlError> {
        let bad = self.error(Why::Escape);
        let letter = self.ahead(1).ok_or(bad)?;
        if matches!(letter, b'\r' | b'\n') {
            // The caller moves past the line's end.
            self.advance(1);
            return Ok(());
        }
        let digits = escape_digits(letter);
        if digits == 0 && escaped(letter).is_none() {
            return Err(bad);
        }
        self.advance(2);
        let mut code = 0u32;
        for _ in 0..digits {
            let digit = self.byte().and_then(|byte| char::from(byte).to_digit(16)).ok_or(bad)?;
            code = code << 4 | digit;
            self.advance(1);
        }
        char::from_u32(code).map(|_| ()).ok_or(bad)
    }

    /// Skips a block scalar (§8.1), whose lines are indented by at least `min`.
    pub(super) fn block_scalar(&mut self, min: usize) -> Result<Scalar<'y>, YamlError> {
        self.advance(1);
        let (mut digit, mut chomp) = (None, false);
        loop {
            match self.byte() {
                Some(byte @ b'1'..=b'9') if digit.is_none() => digit = Some(byte - b'0'),
                Some(b'+' | b'-') if !chomp => chomp = true,
                _ => break,
            }
            self.advance(1);
        }
        self.end_of_line()?;
        self.rest_of_line();
        let begin = self.at();
        let mut indent = digit.map(|digit| min.saturating_sub(1) + usize::from(digit));
        // Columns of the longest empty line before the text, which must be indented as far.
        let mut empty = 0;
        while self.byte().is_some() {
            let line = *self;
            self.newline();
            self.spaces();
            if self.byte() == Some(b'\n') || self.byte().is_none() {
                empty = empty.max(self.column());
                continue;
            }
            let column = self.column();
            let deep = indent.unwrap_or(column.max(min));
            if column < deep || (column == 0 && self.ended()) {
                *self = line;
                break;
            }
            if indent.is_none() && empty > deep {
                return Err(self.error(Why::Indent));
            }
            if indent.is_none() && self.byte() == Some(b'\t') {
                return Err(self.error(Why::Unsupported("a tab")));
            }
            indent = Some(deep);
            self.rest_of_line();
        }
        Ok(Scalar { raw: self.since(begin), style: Style::Block })
    }
}
