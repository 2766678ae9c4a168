//! A position in a document, and moving over bytes, lines, blanks and comments.

use super::scalar::{Scalar, Style};
use super::{KEY, Why, YamlError};

/// A position in a document; a copy of it looks ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'y> {
    text: &'y str,
    at: usize,
    line: u32,
    line_start: usize,
}

/// Returns true for the bytes that separate tokens, and at the end.
fn is_blank(byte: Option<u8>) -> bool {
    matches!(byte, None | Some(b' ' | b'\r' | b'\n' | b'\t'))
}

pub(super) fn is_flow(byte: Option<u8>) -> bool {
    matches!(byte, Some(b',' | b'[' | b']' | b'{' | b'}'))
}

impl<'y> Cursor<'y> {
    pub(super) fn new(bytes: &'y [u8]) -> Result<Self, YamlError> {
        let line_of = |before: &[u8]| {
            let ends = before.iter().filter(|byte| **byte == b'\n').count();
            u32::try_from(ends).unwrap_or(u32::MAX).saturating_add(1)
        };
        let text = core::str::from_utf8(bytes).map_err(|error| {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            YamlError { line: line_of(good), why: Why::Encoding }
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let bad = text.char_indices().find(|(at, character)| match character {
            '\n' | '\t' => false,
            // A carriage return is valid only at a line's end.
            '\r' => text.as_bytes().get(at + 1) != Some(&b'\n'),
            // The first two end a line only in YAML 1.1.
            '\u{2028}' | '\u{2029}' | '\u{feff}' => true,
            character => character.is_control(),
        });
        match bad {
            Some((at, _)) => {
                let good = text.as_bytes().get(..at).unwrap_or_default();
                Err(YamlError { line: line_of(good), why: Why::Control })
            }
            None => Ok(Self { text, at: 0, line: 1, line_start: 0 }),
        }
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    pub(super) fn error(&self, why: Why) -> YamlError {
        YamlError { line: self.line, why }
    }

    /// Bytes since the start of the line. Before a node these are ASCII, so a byte is a column.
    pub(super) fn column(&self) -> usize {
        self.at - self.line_start
    }

    pub(super) fn byte(&self) -> Option<u8> {
        self.ahead(0)
    }

    pub(super) fn ahead(&self, count: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + count).copied()
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the text from byte offset `from` up to here.
    pub(super) fn since(&self, from: usize) -> &'y str {
        self.text.get(from..self.at).unwrap_or_default()
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.at = (self.at + count).min(self.text.len());
    }

    pub(super) fn newline(&mut self) {
        self.advance(1);
        self.line = self.line.saturating_add(1);
        self.line_start = self.at;
    }

    /// Moves over spaces, and over the carriage return of a line's end, which counts as a space
    /// there.
    pub(super) fn spaces(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn rest_of_line(&mut self) {
        while self.byte().is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    pub(super) fn skip_blank(&mut self) -> Result<(), YamlError> {
        loop {
            self.spaces();
            match self.byte() {
                Some(b'\n') => self.newline(),
                Some(b'#') if self.column() == 0 || self.follows_space() => self.rest_of_line(),
                Some(b'\t') => return Err(self.error(Why::Unsupported("a tab"))),
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn follows_space(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.text.as_bytes().get(at));
        before == Some(&b' ')
    }

    /// Checks that only spaces and a comment follow on this line.
    pub(super) fn end_of_line(&mut self) -> Result<(), YamlError> {
        self.spaces();
        match self.byte() {
            Some(b'\n') | None => Ok(()),
            Some(b'#') if self.follows_space() => Ok(()),
            Some(b'\t') => Err(self.error(Why::Unsupported("a tab"))),
            Some(_) => Err(self.error(Why::Unexpected)),
        }
    }

    pub(super) fn at_marker(&self, marker: &[u8]) -> bool {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.column() == 0 && rest.starts_with(marker) && is_blank(self.ahead(3))
    }

    /// Returns true at the end of the document: end of text or a marker.
    pub(super) fn ended(&self) -> bool {
        self.byte().is_none() || self.at_marker(b"---") || self.at_marker(b"...")
    }

    /// Returns true at the dash of an item of a sequence in block style.
    pub(super) fn at_dash(&self) -> bool {
        self.byte() == Some(b'-') && is_blank(self.ahead(1)) && !self.at_marker(b"---")
    }

    /// Returns true at a `:` that ends a key.
    pub(super) fn at_colon(&self, in_flow: bool) -> bool {
        let next = self.ahead(1);
        self.byte() == Some(b':') && (is_blank(next) || (in_flow && is_flow(next)))
    }

    /// Reads a key and its `:`. Without a key, returns `None` and keeps the position.
    pub(super) fn key(&mut self) -> Result<Option<Scalar<'y>>, YamlError> {
        let (begin, line) = (*self, self.line);
        if let Some(b'[' | b'{' | b'|' | b'>') = self.byte() {
            // This is not a scalar key; the caller reports that.
            return Ok(None);
        }
        let scalar = self.scalar(None, false)?;
        if self.line != line {
            *self = begin;
            return Ok(None);
        }
        let length = self.at - begin.at;
        self.spaces();
        if !self.at_colon(false) {
            *self = begin;
            return Ok(None);
        }
        if length > KEY {
            return Err(self.error(Why::LongKey));
        }
        self.advance(1);
        Ok(Some(scalar))
    }

    /// Reads a plain or quoted scalar. Further lines must be indented by `min`; without it (keys) a
    /// plain scalar is on one line.
    pub(super) fn scalar(
        &mut self,
        min: Option<usize>,
        in_flow: bool,
    ) -> Result<Scalar<'y>, YamlError> {
        match self.byte() {
            Some(b'"') => self.quoted(Style::Double, min.unwrap_or(0)),
            Some(b'\'') => self.quoted(Style::Single, min.unwrap_or(0)),
            _ => {
                self.check_plain(in_flow)?;
                self.plain(min, in_flow)
            }
        }
    }

    /// Checks that a plain scalar may begin here (YAML 1.2 §7.3.3).
    pub(super) fn check_plain(&self, in_flow: bool) -> Result<(), YamlError> {
        let next = self.ahead(1);
        let unsafe_next = is_blank(next) || (in_flow && is_flow(next));
        Err(self.error(match self.byte() {
            Some(b'&') => Why::Unsupported("an anchor"),
            Some(b'*') => Why::Unsupported("an alias"),
            Some(b'!') => Why::Unsupported("a tag"),
            Some(b'?') if unsafe_next => Why::Unsupported("a '? ' key"),
            Some(b'\t') => Why::Unsupported("a tab"),
            Some(b'-' | b':') if unsafe_next => Why::Unexpected,
            Some(b'%' | b'@' | b'`' | b'|' | b'>' | b'#' | b'"' | b'\'') | None => Why::Unexpected,
            byte if is_flow(byte) => Why::Unexpected,
            Some(_) => return Ok(()),
        }))
    }
}
