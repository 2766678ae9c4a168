//! All reading and writing of JSON (RFC 8259). A [`Value`] is a span of a document that was checked as a whole,
//! once; forwarded values keep their bytes. Answers and reports are written by a [`Writer`], piece by
//! piece; the status file, whose shape is fixed, by `serde-json-core` ([`View`](crate::status::view::View)).
//!
//! Depth is bounded and nothing recurses, so no document can exhaust the stack. docs/explanation/decisions.md has the reason
//! why `serde-json-core` does no more.

#[cfg(feature = "alloc")]
mod document;
mod envelope;
mod error;
mod scan;
mod string;
mod value;
mod write;

#[cfg(feature = "alloc")]
pub use document::Document;
pub use envelope::{Envelope, Kind};
pub use error::JsonError;
pub use string::unescape_within;
pub use value::Value;
pub use write::Writer;
#[cfg(feature = "alloc")]
pub use write::quoted_length;

#[cfg(test)]
mod tests;
