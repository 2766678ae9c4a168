//! A JSON document that owns its text.

use alloc::string::String;
use alloc::vec::Vec;

use super::{JsonError, Value, Writer};

/// A whole document: valid, because it was checked or written by a [`Writer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document(String);

impl Document {
    /// Creates the document that `write` writes, which must be one value. Initially allocates
    /// `capacity` bytes.
    pub fn new(capacity: usize, write: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut out = String::with_capacity(capacity);
        write(&mut Writer::new(&mut out));
        debug_assert!(Value::parse(out.as_bytes()).is_ok(), "{out}");
        Self(out)
    }

    /// Checks a document that was read.
    /// Errors: [`JsonError`] if it is not UTF-8, not JSON, or too deep.
    pub fn read(document: Vec<u8>) -> Result<Self, JsonError> {
        let text = String::from_utf8(document);
        let text = text.map_err(|error| JsonError::Syntax(error.utf8_error().valid_up_to()))?;
        Value::parse(text.as_bytes())?;
        Ok(Self(text))
    }

    /// Returns the document's value, without the white space around it.
    pub fn value(&self) -> Value<'_> {
        Value::written(self.0.trim_ascii())
    }

    /// Returns the length of the document's text, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    pub fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    pub fn line(mut self) -> String {
        self.0.push('\n');
        self.0
    }
}

impl Default for Document {
    fn default() -> Self {
        Self(Value::NULL.raw().into())
    }
}
