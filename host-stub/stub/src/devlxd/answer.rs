//! Answers before they are put into the envelope, and the guest's token.

use serde_json::Value;

use mote_client::instance::Instance;
use mote_client::net::http::Message;

/// The key with the token for storage, instances and operations.
const BEARER: &str = "mote.bearer";

/// An answer without its envelope.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// Metadata and an `ETag`.
    Data(Value, Option<String>),
    /// Status and text; without a text the status' own.
    Error(u16, String),
    /// An image of that many bytes.
    Image(u64),
}

pub fn data(value: Value) -> Answer {
    Answer::Data(value, None)
}

pub fn error(code: u16, text: &str) -> Answer {
    Answer::Error(code, text.to_owned())
}

/// Returns whether the guest sent the token.
pub fn is_trusted(instance: &Instance, request: &Message) -> bool {
    let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    token.is_some() && token == instance.config.get(BEARER).map(String::as_str)
}
