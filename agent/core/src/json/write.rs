//! Writes JSON piece by piece. It adds commas; the caller must end each object and array that it
//! begins.

use core::fmt::{self, Write};

use super::Value;
use super::string::escape;
use crate::time::Timestamp;

/// Writes one document. Stops at the first error of the output, which [`Writer::done`] returns.
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
    pub fn new(out: &'o mut dyn Write) -> Self {
        Self { out, comma: false, result: Ok(()) }
    }

    /// Creates a writer inside an array or object that already has an element or member.
    pub fn continuing(out: &'o mut dyn Write) -> Self {
        Self { out, comma: true, result: Ok(()) }
    }

    /// Ends writing. Errors: the first error of the output.
    pub fn done(self) -> fmt::Result {
        self.result
    }

    pub fn begin_object(&mut self) {
        self.open("{");
    }

    /// Begins an object that is the value of a member.
    pub fn begin_member(&mut self, name: &'static str) {
        self.key(name);
        self.begin_object();
    }

    pub fn end_object(&mut self) {
        self.close("}");
    }

    pub fn begin_array(&mut self) {
        self.open("[");
    }

    pub fn end_array(&mut self) {
        self.close("]");
    }

    fn open(&mut self, bracket: &str) {
        self.word(bracket);
        self.comma = false;
    }

    fn close(&mut self, bracket: &str) {
        self.comma = true;
        self.put(|out| out.write_str(bracket));
    }

    /// Writes the name of the next member, which must need no escapes.
    pub fn key(&mut self, name: &'static str) {
        debug_assert!(!name.contains(['"', '\\']), "{name}");
        let quote = self.quote();
        self.put(|out| {
            out.write_str(quote)?;
            out.write_str(name)?;
            out.write_str("\":")
        });
        self.comma = false;
    }

    /// Writes any name of the next member; invalid UTF-8 becomes U+FFFD.
    pub fn name(&mut self, name: &[u8]) {
        self.text(name);
        self.colon();
    }

    /// Copies a member of another document unchanged.
    pub fn member(&mut self, name: Value<'_>, value: Value<'_>) {
        self.value(name);
        self.colon();
        self.value(value);
    }

    fn colon(&mut self) {
        self.comma = false;
        self.put(|out| out.write_str(":"));
    }

    pub fn string(&mut self, text: &str) {
        let quote = self.quote();
        self.put(|out| {
            out.write_str(quote)?;
            escape(*out, text)?;
            out.write_str("\"")
        });
    }

    /// Writes a string; invalid UTF-8 becomes U+FFFD, as in Go.
    pub fn text(&mut self, text: &[u8]) {
        let quote = self.quote();
        self.put(|out| {
            out.write_str(quote)?;
            for chunk in text.utf8_chunks() {
                escape(*out, chunk.valid())?;
                if !chunk.invalid().is_empty() {
                    out.write_char(char::REPLACEMENT_CHARACTER)?;
                }
            }
            out.write_str("\"")
        });
    }

    /// Writes a number, limited to `i64::MAX`: the host reads `int64` and refuses the whole answer
    /// if a number does not fit.
    pub fn number(&mut self, number: u64) {
        self.signed(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub fn signed(&mut self, number: i64) {
        self.raw(format_args!("{number}"));
    }

    /// Writes a number given in hundredths, with two decimal places.
    pub fn hundredths(&mut self, number: u64) {
        self.raw(format_args!("{}.{:02}", number / 100, number % 100));
    }

    pub fn boolean(&mut self, value: bool) {
        self.word(if value { "true" } else { "false" });
    }

    pub fn time(&mut self, time: Timestamp) {
        let quote = self.quote();
        self.put(|out| write!(out, "{quote}{time}\""));
    }

    /// Writes formatted text as a string.
    pub fn shown(&mut self, text: fmt::Arguments<'_>) {
        let quote = self.quote();
        self.put(|out| {
            out.write_str(quote)?;
            Escaped(*out).write_fmt(text)?;
            out.write_str("\"")
        });
    }

    pub fn value(&mut self, value: Value<'_>) {
        self.word(value.raw());
    }

    /// Writes a member whose value is a string.
    pub fn pair(&mut self, name: &'static str, text: &str) {
        self.key(name);
        self.string(text);
    }

    /// Writes a member whose value is a string, or `null` for `None`.
    pub fn maybe(&mut self, name: &'static str, text: Option<&str>) {
        self.key(name);
        match text {
            Some(text) => self.string(text),
            None => self.value(Value::NULL),
        }
    }

    /// Writes a member whose value is a number.
    pub fn count(&mut self, name: &'static str, number: u64) {
        self.key(name);
        self.number(number);
    }

    pub fn flag(&mut self, name: &'static str, value: bool) {
        self.key(name);
        self.boolean(value);
    }

    pub fn numbers(&mut self, members: &[(&'static str, u64)]) {
        for (name, number) in members {
            self.count(name, *number);
        }
    }

    fn word(&mut self, word: &str) {
        self.separate();
        self.put(|out| out.write_str(word));
    }

    fn raw(&mut self, value: fmt::Arguments<'_>) {
        self.separate();
        self.put(|out| out.write_fmt(value));
    }

    /// Returns the opening quote of a string, after a comma if needed.
    fn quote(&mut self) -> &'static str {
        if core::mem::replace(&mut self.comma, true) { ",\"" } else { "\"" }
    }

    fn separate(&mut self) {
        if core::mem::replace(&mut self.comma, true) {
            self.put(|out| out.write_str(","));
        }
    }

    fn put(&mut self, write: impl FnOnce(&mut &'o mut dyn Write) -> fmt::Result) {
        if self.result.is_ok() {
            self.result = write(&mut self.out);
        }
    }
}

struct Escaped<'o>(&'o mut dyn Write);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(self.0, text)
    }
}

/// Returns the length of `text` as a JSON string with quotes, in bytes.
#[cfg(feature = "alloc")]
pub fn quoted_length(text: &str) -> usize {
    let mut length = Length(2);
    let _infallible = escape(&mut length, text);
    length.0
}

#[cfg(feature = "alloc")]
struct Length(usize);

#[cfg(feature = "alloc")]
impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_commas_only_between_values() {
        let mut out = String::new();
        let mut json = Writer::new(&mut out);
        json.begin_object();
        json.key("a");
        json.begin_array();
        json.number(u64::MAX);
        json.hundredths(5);
        json.begin_array();
        json.end_array();
        json.text(b"x\"\xff");
        json.boolean(true);
        json.signed(-1);
        json.value(Value::NULL);
        json.shown(format_args!("{}\n", '"'));
        json.end_array();
        json.numbers(&[("b", 1), ("c", 2)]);
        json.maybe("none", None);
        // Values that were read are written unchanged.
        let read = Value::parse(br#"{"d\u0041": [1, 2] , "e":{}}"#).unwrap();
        read.members().for_each(|(name, value)| json.member(name, value));
        json.end_object();
        json.done().unwrap();
        let numbers =
            "{'a':[9223372036854775807,0.05,[],'x\\'\u{fffd}',true,-1,null,'\\'\\n'],'b':1,'c':2,";
        let expected = [numbers, "'none':null,'d\\u0041':[1, 2],'e':{}}"].concat();
        assert_eq!(out, expected.replace('\'', "\""));
    }
    #[test]
    fn escapes_and_counts_every_control_character() {
        let text = "a\"\\/\n\r\t\0\u{1f}\u{7f}\u{20ac}";
        let expected = "\"a\\\"\\\\/\\n\\r\\t\\u0000\\u001f\u{7f}\u{20ac}\"";
        let mut out = String::new();
        Writer::new(&mut out).text(text.as_bytes());
        assert_eq!((out.as_str(), quoted_length(text)), (expected, expected.len()));
        out.clear();
        Writer::new(&mut out).string(text);
        assert_eq!(out, expected);
        out.clear();
        Writer::new(&mut out).shown(format_args!("{text}"));
        assert_eq!(out, expected);
    }
}
