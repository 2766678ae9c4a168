//! A JSON value of a checked document.

#[cfg(feature = "alloc")]
use alloc::string::String;
use core::str::FromStr;

use super::JsonError;
use super::scan::Cursor;
use super::string::{is_text, unescape};

/// A value, as a span of its document. Only a checked document or a [`super::Writer`] creates one,
/// so its text is valid JSON of bounded depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'j>(&'j str);

impl<'j> Value<'j> {
    pub const NULL: Value<'static> = Value("null");
    pub const EMPTY: Value<'static> = Value("{}");

    /// Checks a whole document; only white space may follow its value.
    /// Errors: any [`JsonError`] except `Shape` and `TooLong`.
    pub fn parse(document: &'j [u8]) -> Result<Self, JsonError> {
        let text = core::str::from_utf8(document);
        let text = text.map_err(|error| JsonError::Syntax(error.valid_up_to()))?;
        let mut cursor = Cursor::new(text);
        let value = cursor.value()?;
        cursor.end()?;
        Ok(Self(value))
    }

    /// Wraps a text that was checked, or written by a writer of this module.
    #[cfg(feature = "alloc")]
    pub(super) fn written(text: &'j str) -> Self {
        Self(text)
    }

    /// Returns the value's JSON text, unchanged.
    pub fn raw(self) -> &'j str {
        self.0
    }

    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    pub fn is_array(self) -> bool {
        self.0.starts_with('[')
    }

    pub fn is(self, text: &str) -> bool {
        is_text(self.0, text)
    }

    /// Returns the value of the last member `name`, which may be `null`. Returns `None` if it is
    /// missing or this is not an object.
    pub fn member(self, name: &str) -> Option<Self> {
        self.members().filter(|(found, _)| found.is(name)).last().map(|(_, value)| value)
    }

    /// Returns the members with these names in one pass. As in Go, the last value of a name counts,
    /// and `null` counts as absent. Errors: [`JsonError::Shape`] if it is not an object.
    pub fn fields<const N: usize>(
        self,
        names: [&'static str; N],
    ) -> Result<[Option<Self>; N], JsonError> {
        let mut found = [None; N];
        self.find(&names, &mut found)?;
        Ok(found)
    }

    #[inline(never)] // one copy, not one for each number of names
    fn find(self, names: &[&str], found: &mut [Option<Self>]) -> Result<(), JsonError> {
        if !self.is_object() {
            return Err(JsonError::Shape);
        }
        for (name, value) in self.members().filter(|(_, value)| !value.is_null()) {
            for (slot, _) in found.iter_mut().zip(names).filter(|(_, wanted)| name.is(wanted)) {
                *slot = Some(value);
            }
        }
        Ok(())
    }

    /// Returns the names and values of an object's members; nothing if this is not an object.
    pub fn members(self) -> impl Iterator<Item = (Self, Self)> {
        self.items(b"{}")
    }

    /// Returns the elements of an array; nothing if this is not an array.
    pub fn elements(self) -> impl Iterator<Item = Self> {
        self.items(b"[]").map(|(_, value)| value)
    }

    /// Returns names and values between these brackets; in an array, the names are empty.
    fn items(self, [begin, end]: &'static [u8; 2]) -> impl Iterator<Item = (Self, Self)> {
        let mut cursor = Cursor::new(self.0);
        let mut open = cursor.eat(*begin);
        core::iter::from_fn(move || {
            if !core::mem::replace(&mut open, false) || cursor.peek() == Some(*end) {
                return None;
            }
            let mut name = "";
            if *begin == b'{' {
                name = cursor.value().ok()?;
                if !cursor.eat(b':') {
                    return None;
                }
            }
            let value = cursor.value().ok()?;
            open = cursor.eat(b',');
            Some((Self(name), Self(value)))
        })
    }

    /// Returns `true` or `false`. Errors: [`JsonError::Shape`] if it is neither.
    pub fn boolean(self) -> Result<bool, JsonError> {
        match self.0 {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(JsonError::Shape),
        }
    }

    /// Returns the number as a `T`.
    /// Errors: [`JsonError::Shape`] if it is not a number, or `T` cannot hold it.
    pub fn number<T: FromStr>(self) -> Result<T, JsonError> {
        self.0.parse().map_err(|_| JsonError::Shape)
    }

    /// Passes the decoded text of a string to `sink`, piece by piece. Lone surrogates become
    /// U+FFFD, as in Go. Errors: [`JsonError::Shape`] if it is not a string; any error of `sink`.
    pub fn unescape(
        self,
        mut sink: impl FnMut(&str) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        unescape(self.0, &mut sink)
    }

    /// Copies the decoded text of a string into `out`. Errors: [`JsonError::Shape`] if it is not a
    /// string, [`JsonError::TooLong`] if it does not fit.
    pub fn text(self, out: &mut [u8]) -> Result<&str, JsonError> {
        let mut length = 0;
        self.unescape(|piece| {
            let end = length + piece.len();
            let target = out.get_mut(length..end).ok_or(JsonError::TooLong)?;
            target.copy_from_slice(piece.as_bytes());
            length = end;
            Ok(())
        })?;
        let text = out.get(..length).unwrap_or_default();
        core::str::from_utf8(text).map_err(|_| JsonError::Shape)
    }

    /// Returns the decoded text of a string. Errors: [`JsonError::Shape`] if it is not a string.
    #[cfg(feature = "alloc")]
    #[inline(never)] // its size
    pub fn string(self) -> Result<String, JsonError> {
        let mut text = String::with_capacity(self.0.len());
        self.unescape(|piece| {
            text.push_str(piece);
            Ok(())
        })?;
        Ok(text)
    }
}

/// Type of an envelope (P§4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The metadata is the answer.
    Sync,
    /// The request has started an operation.
    Async,
    /// The request failed.
    Error,
}

/// The fields of an envelope that the agent uses.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'j> {
    pub kind: Kind,
    /// `error_code`; 0 if missing or out of range.
    pub error_code: u16,
    /// `error`, unchecked: a string with the reason.
    pub error: Option<Value<'j>>,
    /// `metadata`; `null` if there is none.
    pub metadata: Value<'j>,
}

impl<'j> Envelope<'j> {
    /// Reads a host's answer. Errors: [`JsonError`] if it is not JSON; [`JsonError::Shape`] if it
    /// is not an object or its `type` is unknown.
    pub fn parse(answer: &'j [u8]) -> Result<Self, JsonError> {
        let answer = Value::parse(answer)?;
        let [kind, error_code, error, metadata] =
            answer.fields(["type", "error_code", "error", "metadata"])?;
        let kind = kind.ok_or(JsonError::Shape)?;
        let kind = [("sync", Kind::Sync), ("async", Kind::Async), ("error", Kind::Error)]
            .into_iter()
            .find_map(|(word, known)| kind.is(word).then_some(known));
        Ok(Self {
            kind: kind.ok_or(JsonError::Shape)?,
            error_code: error_code.and_then(|code| code.number().ok()).unwrap_or(0),
            error,
            metadata: metadata.unwrap_or(Value::NULL),
        })
    }
}
