//! Reads and writes JSON (RFC 8259). A [`Value`] is a span of a checked document; forwarded values
//! keep their bytes. A [`Writer`] writes answers and reports piece by piece. `serde-json-core`
//! writes the status file, whose structure is fixed ([`View`](crate::status::view::View)).
//!
//! Depth is bounded and nothing recurses, so no document can exhaust the stack.
//! docs/explanation/decisions.md gives the reasons for not using `serde-json-core` for more.

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
