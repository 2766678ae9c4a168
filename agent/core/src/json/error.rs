//! Errors of reading JSON.

use core::fmt;

/// Error of reading JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// Not JSON, or not UTF-8, at this offset, bytes.
    Syntax(usize),
    /// Nested deeper than [`crate::limits::JSON_DEPTH`].
    TooDeep,
    /// The document ends too early.
    Truncated,
    /// Something other than white space follows the document at this offset, bytes.
    Trailing(usize),
    /// JSON, but a member is missing or a value has another type than expected.
    Shape,
    /// A text is longer than the buffer for it.
    TooLong,
}

impl fmt::Display for JsonError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(at) => write!(out, "not JSON at byte {at}"),
            Self::TooDeep => out.write_str("JSON nested too deeply"),
            Self::Truncated => out.write_str("JSON ends too early"),
            Self::Trailing(at) => write!(out, "something follows the JSON at byte {at}"),
            Self::Shape => out.write_str("JSON of another shape than expected"),
            Self::TooLong => out.write_str("a JSON text is too long"),
        }
    }
}
