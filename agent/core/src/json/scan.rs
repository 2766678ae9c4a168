//! Scans JSON values without recursion: the bits of one number are the stack of open brackets.

use super::JsonError;
use super::string::simple_escape;
use crate::limits;

/// A position in a document.
pub(super) struct Cursor<'j> {
    text: &'j str,
    at: usize,
}

/// The token expected next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    /// A value or `]`, after `[`.
    FirstValue,
    /// A name or `}`, after `{`.
    FirstName,
    Name,
    /// A comma or the closing bracket, after a value.
    Next,
}

impl<'j> Cursor<'j> {
    pub(super) fn new(text: &'j str) -> Self {
        Self { text, at: 0 }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while self.byte().is_some_and(is_space) {
            self.at += 1;
        }
    }

    /// Skips white space; returns the next byte without taking it.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.space();
        self.byte()
    }

    /// Skips white space, and takes `byte` if it is next. Returns whether it did.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    /// Checks that only white space is left.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        if self.peek().is_some() { Err(JsonError::Trailing(self.at)) } else { Ok(()) }
    }

    fn syntax<T>(&self) -> Result<T, JsonError> {
        Err(if self.at < self.text.len() {
            JsonError::Syntax(self.at)
        } else {
            JsonError::Truncated
        })
    }

    /// Takes one value of any type; returns its span.
    pub(super) fn value(&mut self) -> Result<&'j str, JsonError> {
        self.space();
        let start = self.at;
        // A bit for each open bracket, 1 for `{` and 0 for `[`; the innermost one is the lowest.
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
        Ok(self.text.get(start..self.at).unwrap_or_default())
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
            if self.byte() != Some(*byte) {
                return self.syntax();
            }
            self.at += 1;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { self.syntax() } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn hex4(&mut self) -> Result<(), JsonError> {
        for _ in 0..4 {
            if !self.byte().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                return self.syntax();
            }
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            match self.byte() {
                None => return Err(JsonError::Truncated),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    match self.byte() {
                        Some(b'u') => {
                            self.at += 1;
                            self.hex4()?;
                        }
                        Some(letter) if simple_escape(letter).is_some() => self.at += 1,
                        Some(_) | None => return self.syntax(),
                    }
                }
                Some(control) if control < 0x20 => return self.syntax(),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(())
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
