//! JSON written piece by piece, with the commas in the right places. Whoever opens, closes.

use core::fmt::{self, Write};

use super::quote;

/// Writes one document. An error of the output is kept until [`Writer::done`].
pub struct Writer<'o> {
    out: &'o mut dyn Write,
    comma: bool,
    result: fmt::Result,
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Writer").field("result", &self.result).finish_non_exhaustive()
    }
}

impl<'o> Writer<'o> {
    /// At the beginning of a document.
    pub fn new(out: &'o mut dyn Write) -> Self {
        Self { out, comma: false, result: Ok(()) }
    }

    /// In the middle of a list or an object that has something in it.
    pub fn behind(out: &'o mut dyn Write) -> Self {
        Self { out, comma: true, result: Ok(()) }
    }

    /// How it went.
    ///
    /// # Errors
    /// The first of the output's.
    pub fn done(self) -> fmt::Result {
        self.result
    }

    /// `{` or `[`.
    pub fn open(&mut self, bracket: char) {
        self.separate();
        self.comma = false;
        self.put(|out| out.write_char(bracket));
    }

    /// `}` or `]`.
    pub fn close(&mut self, bracket: char) {
        self.comma = true;
        self.put(|out| out.write_char(bracket));
    }

    /// The name of the value that comes next.
    pub fn key(&mut self, name: &str) {
        self.name(name.as_bytes());
    }

    /// The same; what is not UTF-8 becomes U+FFFD.
    pub fn name(&mut self, name: &[u8]) {
        self.text(name);
        self.comma = false;
        self.put(|out| out.write_char(':'));
    }

    /// A string; what is not UTF-8 becomes U+FFFD, as Go makes it.
    pub fn text(&mut self, text: &[u8]) {
        self.separate();
        self.put(|out| {
            if let Ok(text) = core::str::from_utf8(text) {
                return quote(out, text);
            }
            quote(out, &alloc::string::String::from_utf8_lossy(text))
        });
    }

    /// A number that Go reads into any of its types: state fields are `int64`, and one that did not
    /// fit would cost the host the whole answer.
    pub fn number(&mut self, number: u64) {
        let number = number.min(i64::MAX.unsigned_abs());
        self.raw(format_args!("{number}"));
    }

    /// A number given in hundredths.
    pub fn hundredths(&mut self, number: u64) {
        self.raw(format_args!("{}.{:02}", number / 100, number % 100));
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, value: fmt::Arguments<'_>) {
        self.separate();
        self.put(|out| out.write_fmt(value));
    }

    /// Some members with numbers.
    pub fn numbers(&mut self, members: &[(&str, u64)]) {
        for (name, number) in members {
            self.key(name);
            self.number(*number);
        }
    }

    fn separate(&mut self) {
        if core::mem::replace(&mut self.comma, true) {
            self.put(|out| out.write_char(','));
        }
    }

    fn put(&mut self, write: impl FnOnce(&mut &'o mut dyn Write) -> fmt::Result) {
        if self.result.is_ok() {
            self.result = write(&mut self.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    #[test]
    fn commas_stand_between_and_nowhere_else() {
        let mut out = String::new();
        let mut json = Writer::new(&mut out);
        json.open('{');
        json.key("a");
        json.open('[');
        json.number(u64::MAX);
        json.hundredths(5);
        json.open('[');
        json.close(']');
        json.text(b"x\"\xff");
        json.close(']');
        json.numbers(&[("b", 1), ("c", 2)]);
        json.close('}');
        json.done().unwrap();
        let expected = "{'a':[9223372036854775807,0.05,[],'x\\'\u{fffd}'],'b':1,'c':2}";
        assert_eq!(out, expected.replace('\'', "\""));
    }
}
