//! Reads and writes JSON (RFC 8259). A [`Value`] is a span of a document that was checked once as a
//! whole; forwarded values keep their bytes. A [`Writer`] writes answers and reports piece by
//! piece. `serde-json-core` writes the status file, whose shape is fixed
//! ([`View`](crate::status::view::View)).
//!
//! Depth is bounded and nothing recurses, so no document can exhaust the stack.
//! docs/explanation/decisions.md says why `serde-json-core` does no more.

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
