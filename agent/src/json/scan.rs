//! Walks over JSON, value by value, without recursion: the open brackets are bits of a number.

use super::JsonError;
use super::string::simple_escape;
use crate::limits;

/// A place in a document.
pub(super) struct Cursor<'j> {
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
    /// At the front of these bytes.
    pub(super) fn new(bytes: &'j [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn space(&mut self) {
        while self.bytes.get(self.at).copied().is_some_and(is_space) {
            self.at += 1;
        }
    }

    /// The next byte that is no white space.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.space();
        self.bytes.get(self.at).copied()
    }

    /// Takes this byte, if it is next.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    /// Nothing but white space may be left.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        if self.peek().is_some() { Err(JsonError::Trailing(self.at)) } else { Ok(()) }
    }

    fn syntax<T>(&self) -> Result<T, JsonError> {
        Err(if self.at < self.bytes.len() {
            JsonError::Syntax(self.at)
        } else {
            JsonError::Truncated
        })
    }

    /// Takes one value of any kind and gives its span.
    pub(super) fn value(&mut self) -> Result<&'j [u8], JsonError> {
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

    fn hex4(&mut self) -> Result<(), JsonError> {
        for _ in 0..4 {
            if !self.bytes.get(self.at).is_some_and(u8::is_ascii_hexdigit) {
                return self.syntax();
            }
            self.at += 1;
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
                            self.at += 1;
                            self.hex4()?;
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

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
