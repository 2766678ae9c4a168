//! Reading scalars of each style from a document.

use super::cursor::{Cursor, is_flow};
use super::error::{Why, YamlError};
use super::scalar::{Scalar, Style, escape_digits, escaped};

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
            // One line; `end` is set after its last word.
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
            // The caller moves over the line's end.
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
        // Longest empty line before the text, columns; the text must be indented at least as far.
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
