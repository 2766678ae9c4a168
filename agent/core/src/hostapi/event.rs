//! Events (P§4.3): parses those that a host posts, and decides which listener may receive which
//! type.
//!
//! Clients in the guest get the types that the devlxd API promises (config and device), and the
//! agent's own, restored. The Go agents also send them the host's operations, including the secrets
//! of every exec (P§9.9).

use alloc::string::String;

use core::fmt;

use crate::http::query::query;
use crate::json::{Document, JsonError, Value};

/// Type of events about operations.
pub const OPERATION: &str = "operation";
/// Type of events about devices.
pub const DEVICE: &str = "device";
/// Type of events about the instance's configuration.
pub const CONFIG: &str = "config";
/// Type of the agent's own events for the guest, sent after a resume.
pub const RESTORED: &str = "restored";

/// Where a listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The host; may receive every type.
    Host,
    /// A client in the guest.
    Guest,
}

impl Audience {
    /// Returns whether it may receive events of this type. For guests this is a list of permitted
    /// types, because a type that a later server adds may be secret.
    fn may_hear(self, kind: &str) -> bool {
        match self {
            Self::Host => kind != RESTORED,
            Self::Guest => kind == CONFIG || kind == DEVICE || kind == RESTORED,
        }
    }
}

/// The events that a listener gets.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Side of the listener.
    pub audience: Audience,
    /// Requested types, separated by commas; empty for all permitted ones.
    types: String,
}

impl Subscription {
    /// Creates it from the `type` parameter of a request's query.
    #[must_use]
    pub fn new(audience: Audience, asked: Option<&str>) -> Self {
        let types = query(asked, "type").unwrap_or_default();
        // Go's clients encode the comma.
        Self { audience, types: types.replace("%2C", ",").replace("%2c", ",") }
    }

    /// Returns whether the listener receives events of this type.
    #[must_use]
    pub fn hears(&self, kind: &str) -> bool {
        let wanted = self.types.is_empty() || self.types.split(',').any(|word| word == kind);
        wanted && self.audience.may_hear(kind)
    }
}

/// Returns a document on one line with a newline at its end (JSON lines). In JSON a raw line end is
/// always white space. Works in place, because events may be long.
#[must_use]
pub fn one_line(document: Document) -> String {
    let mut line = document.line().into_bytes();
    let text = line.split_last_mut().map(|(_newline, text)| text).unwrap_or_default();
    for byte in text.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    String::from_utf8(line).unwrap_or_default()
}

/// An event as a host posts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted<'j> {
    /// The whole event.
    pub whole: Value<'j>,
    /// Its type. Without one, only listeners for every type receive it, as with the Go agents.
    pub kind: String,
    /// Its data; `null` if there is none.
    pub metadata: Value<'j>,
}

/// Returns whether the metadata of a device event reports an added NIC (P§4.3).
#[must_use]
pub fn adds_nic(metadata: Value<'_>) -> bool {
    let Ok([Some(action), Some(config)]) = metadata.fields(["action", "config"]) else {
        return false;
    };
    action.is("added") && config.member("type").is_some_and(|kind| kind.is("nic"))
}

/// Why a body is not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadEvent {
    /// Not a JSON object.
    Json(JsonError),
    /// Its type is not a string.
    Type,
}

impl fmt::Display for BadEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(out),
            Self::Type => out.write_str("the type is not a string"),
        }
    }
}

impl<'j> Posted<'j> {
    /// Reads the body of `POST /1.0/events`; ignores unknown members, such as the host's timestamp.
    ///
    /// # Errors
    /// [`BadEvent`] if it is not a JSON object or its type is not a string.
    pub fn parse(body: &'j [u8]) -> Result<Self, BadEvent> {
        let whole = Value::parse(body).map_err(BadEvent::Json)?;
        let [kind, metadata] = whole.fields(["type", "metadata"]).map_err(BadEvent::Json)?;
        let kind = kind.map_or(Ok(String::new()), Value::string).map_err(|_| BadEvent::Type)?;
        Ok(Self { whole, kind, metadata: metadata.unwrap_or(Value::NULL) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert, prop_assert_eq, proptest};
    use std::format;
    use std::string::ToString;

    #[test]
    fn guests_never_receive_events_about_operations() {
        for asked in [None, Some("type=operation"), Some("type=config,operation"), Some("type=")] {
            let guest = Subscription::new(Audience::Guest, asked);
            assert!(!guest.hears(OPERATION), "{asked:?}");
            assert!(Subscription::new(Audience::Host, asked).hears(OPERATION), "{asked:?}");
        }
        let all = Subscription::new(Audience::Guest, None);
        assert!(all.hears(CONFIG) && all.hears(DEVICE));
    }

    proptest! {
        #[test]
        fn guests_receive_only_three_types(asked in "(type=)?([a-z]{0,9}(,|%2C)?){0,3}", kind in "[a-zA-Z ,]{0,12}") {
            let guest = Subscription::new(Audience::Guest, Some(&asked));
            prop_assert!(!guest.hears(&kind) || kind == CONFIG || kind == DEVICE || kind == RESTORED, "{}", kind);
            let alone = Subscription::new(Audience::Host, Some(&format!("type={kind}")));
            prop_assert_eq!(alone.hears(&kind), !kind.contains(',') , "{}", kind);
        }
    }

    #[test]
    fn sends_only_the_requested_types() {
        for comma in [",", "%2C", "%2c"] {
            let asked = format!("x=1&type=operation{comma}config");
            let host = Subscription::new(Audience::Host, Some(&asked));
            assert!(host.hears(OPERATION) && host.hears(CONFIG), "{comma}");
            assert!(!host.hears(DEVICE) && !host.hears(""), "{comma}");
        }
        // An event without a type goes to those who listen to all types.
        assert!(Subscription::new(Audience::Host, None).hears(""));
        assert!(!Subscription::new(Audience::Guest, None).hears(""));
    }

    #[test]
    fn reads_an_event_with_and_without_its_members() {
        let read = |body: &'static str| {
            Posted::parse(body.as_bytes()).map(|event| (event.kind, event.metadata.raw()))
        };
        let device = r#"{"type":"dev\u0069ce","timestamp":"x","metadata":{"name": "d"}}"#;
        assert_eq!(read(device), Ok((DEVICE.into(), r#"{"name": "d"}"#)));
        assert_eq!(read("{}"), Ok(("".into(), "null")));
        assert_eq!(read(r#"{"type":null,"metadata":7}"#), Ok(("".into(), "7")));
        // The last of two members with one name counts, as in Go's decoder.
        let twice = r#"{"type":"a","type":"b","metadata":1,"metadata":2}"#;
        assert_eq!(read(twice), Ok(("b".into(), "2")));
    }

    #[test]
    fn puts_an_event_on_one_line_without_changing_its_value() {
        let body = "{\r\n  \"type\": \"config\",\n\t\"metadata\":\n[1,\r2, \"a\\nb\"]\n}\n";
        let line = one_line(Document::read(body.into()).unwrap());
        assert_eq!(line.find(['\n', '\r']), Some(line.len() - 1), "{line}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&line), value(body));
    }

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
