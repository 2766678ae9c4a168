//! Reads and writes JSON (RFC 8259). A [`Value`] is a span of a checked document; forwarded values
//! keep their bytes. A [`Writer`] writes answers and reports piece by piece. `serde-json-core`
//! writes the status file, whose structure is fixed ([`View`](crate::status::view::View)).
//!
//! Depth is bounded and nothing recurses, so no document can exhaust the stack.
//! docs/explanation/decisions.md gives the reasons for not using `serde-json-core` for more.

#[cfg(feature = "alloc")]
mod document;
mod scan;
mod string;
mod value;
mod write;

use core::fmt;

#[cfg(feature = "alloc")]
pub use document::Document;
pub use string::unescape_within;
pub use value::{Envelope, Kind, Value};
pub use write::Writer;
#[cfg(feature = "alloc")]
pub use write::quoted_length;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// The document is not JSON or not UTF-8 at this offset, in bytes.
    Syntax(usize),
    /// Nested deeper than [`crate::limits::JSON_DEPTH`].
    TooDeep,
    Truncated,
    /// More than white space follows the document at this offset, in bytes.
    Trailing(usize),
    /// A member is missing, or a value has an unexpected type.
    Shape,
    /// A text is longer than its buffer.
    TooLong,
}

impl fmt::Display for JsonError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(at) => write!(out, "not JSON at byte {at}"),
            Self::TooDeep => out.write_str("JSON nested too deeply"),
            Self::Truncated => out.write_str("JSON ends too early"),
            Self::Trailing(at) => write!(out, "unexpected data after the JSON at byte {at}"),
            Self::Shape => out.write_str("unexpected JSON structure"),
            Self::TooLong => out.write_str("a JSON text is too long"),
        }
    }
}

/// Why a document cannot be read as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDocument {
    Json(JsonError),
    /// This member is missing or invalid.
    Member(&'static str),
}

impl From<JsonError> for BadDocument {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl fmt::Display for BadDocument {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(out),
            Self::Member(what) => out.write_str(what),
        }
    }
}

#[cfg(test)]
mod tests;
