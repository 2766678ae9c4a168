//! Events (P§4.3): parses those that a host posts, and decides which listener may receive which
//! type.
//!
//! Clients in the guest get the types that the devlxd API promises (config and device), and the
//! agent's own type `restored`. The Go agents also send them the host's operations, including the
//! secrets of every exec (P§9.9).

use alloc::string::String;

use crate::http::query;
use crate::json::{BadDocument, Document, Value};

pub const OPERATION: &str = "operation";
pub const DEVICE: &str = "device";
pub const CONFIG: &str = "config";
/// Type of the agent's own events for the guest, sent after a resume.
pub const RESTORED: &str = "restored";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The host, which may receive every type.
    Host,
    Guest,
}

impl Audience {
    /// Returns whether the audience may receive events of this type. Guests have a list of
    /// permitted types, because a type that a later server adds may be secret.
    fn may_hear(self, kind: &str) -> bool {
        match self {
            Self::Host => kind != RESTORED,
            Self::Guest => kind == CONFIG || kind == DEVICE || kind == RESTORED,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Subscription {
    pub audience: Audience,
    /// Requested types, separated by commas; empty for all permitted ones.
    types: String,
}

impl Subscription {
    /// Creates a subscription from the `type` parameter of a request's query.
    pub fn new(audience: Audience, asked: Option<&str>) -> Self {
        let types = query(asked, "type").unwrap_or_default();
        // Go's clients encode the comma.
        Self { audience, types: types.replace("%2C", ",").replace("%2c", ",") }
    }

    pub fn hears(&self, kind: &str) -> bool {
        let wanted = self.types.is_empty() || self.types.split(',').any(|word| word == kind);
        wanted && self.audience.may_hear(kind)
    }
}

/// Returns a document on one line with a newline at its end (JSON lines). In JSON a raw line end is
/// always white space. Works in place, because events may be long.
pub fn one_line(document: Document) -> String {
    let mut line = document.line().into_bytes();
    let text = line.split_last_mut().map(|(_newline, text)| text).unwrap_or_default();
    for byte in text.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    String::from_utf8(line).unwrap_or_default()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted<'j> {
    pub whole: Value<'j>,
    /// The event's type. Without one, only listeners for every type get it, as with the Go agents.
    pub kind: String,
    /// The event's data; `null` if there is none.
    pub metadata: Value<'j>,
}

/// Returns whether the metadata of a device event reports an added NIC (P§4.3).
pub fn adds_nic(metadata: Value<'_>) -> bool {
    let Ok([Some(action), Some(config)]) = metadata.fields(["action", "config"]) else {
        return false;
    };
    action.is("added") && config.member("type").is_some_and(|kind| kind.is("nic"))
}

impl<'j> Posted<'j> {
    /// Reads the body of `POST /1.0/events`; ignores unknown members, such as the host's timestamp.
    /// Errors: [`BadDocument`] if it is not a JSON object or its type is not a string.
    pub fn parse(body: &'j [u8]) -> Result<Self, BadDocument> {
        let whole = Value::parse(body)?;
        let [kind, metadata] = whole.fields(["type", "metadata"])?;
        let kind = kind.map_or(Ok(String::new()), Value::string);
        let kind = kind.map_err(|_| BadDocument::Member("the type is not a string"))?;
        Ok(Self { whole, kind, metadata: metadata.unwrap_or(Value::NULL) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_events_with_the_reason() {
        for (body, why) in [
            ("", "JSON ends too early"),
            ("{\"type\":\"a\"", "JSON ends too early"),
            ("[]", "unexpected JSON structure"),
            ("{\"type\":7}", "the type is not a string"),
            ("{}x", "unexpected data after the JSON at byte 2"),
        ] {
            let error = Posted::parse(body.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), why, "{body}");
        }
    }
}
