//! Answers before they are wrapped, and whose token opens more of them.

use serde_json::Value;

use mote_client::instance::Instance;
use mote_client::net::http::Message;

/// The key that has the token for storage, instances and operations.
const BEARER: &str = "mote.bearer";

/// An answer, before it is wrapped.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// Metadata, and an `ETag`.
    Data(Value, Option<String>),
    /// Status and text; an empty one stands for the status' own words.
    Error(u16, String),
    /// An image of so many bytes.
    Image(u64),
}

/// Metadata.
pub fn data(value: Value) -> Answer {
    Answer::Data(value, None)
}

/// An error.
pub fn error(code: u16, text: &str) -> Answer {
    Answer::Error(code, text.to_owned())
}

/// Whether the guest showed the token.
pub fn is_trusted(instance: &Instance, request: &Message) -> bool {
    let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    token.is_some() && token == instance.config.get(BEARER).map(String::as_str)
}
