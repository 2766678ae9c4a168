//! Events (P§4.3): those that a host posts, and the types that each listener may get.
//!
//! Clients in the guest get the types that the devlxd API promises, config and device, and the agent's own: restored. The real agents also
//! give them the host's operations, with the secrets of every exec (P§9.9).

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
/// Type of the agent's own events for the guest: the VM runs again.
pub const RESTORED: &str = "restored";

/// Side on which a listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The host: gets every type.
    Host,
    /// A client in the guest.
    Guest,
}

impl Audience {
    /// Whether it may get events of this type. For guests this is a list of permitted types, since a type that
    /// a later server adds may be secret.
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
    /// Types asked for, separated by commas; empty for all permitted ones.
    types: String,
}

impl Subscription {
    /// From the `type` parameter of a request's query.
    #[must_use]
    pub fn new(audience: Audience, asked: Option<&str>) -> Self {
        let types = query(asked, "type").unwrap_or_default();
        // Go's clients encode the comma.
        Self { audience, types: types.replace("%2C", ",").replace("%2c", ",") }
    }

    /// Whether the listener gets events of this type.
    #[must_use]
    pub fn hears(&self, kind: &str) -> bool {
        let wanted = self.types.is_empty() || self.types.split(',').any(|word| word == kind);
        wanted && self.audience.may_hear(kind)
    }
}

/// A document on one line, as listeners get it (JSON lines), with a newline at its end. In JSON a raw line end is
/// always white space. In place, since events may be long.
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
    /// Its type. Without one it goes to those who listen to every type, as with the Go agents.
    pub kind: String,
    /// Its data; `null` if there is none.
    pub metadata: Value<'j>,
}

/// Whether the metadata of an event about a device say that a NIC was added (P§4.3).
#[must_use]
pub fn adds_nic(metadata: Value<'_>) -> bool {
    let Ok([Some(action), Some(config)]) = metadata.fields(["action", "config"]) else {
        return false;
    };
    action.is("added") && config.member("type").is_some_and(|kind| kind.is("nic"))
}

/// Reason why a body is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadEvent {
    /// Not a JSON object.
    Json(JsonError),
    /// Its type is no string.
    Type,
}

impl fmt::Display for BadEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(out),
            Self::Type => out.write_str("the type is no text"),
        }
    }
}

impl<'j> Posted<'j> {
    /// Reads the body of `POST /1.0/events`. Unknown members, the host's timestamp among them, are skipped.
    ///
    /// # Errors
    /// [`BadEvent`] if it is no JSON object or its type is no string.
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
    fn guests_never_hear_of_operations_whatever_they_ask_for() {
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
        fn a_guest_hears_three_types_only(asked in "(type=)?([a-z]{0,9}(,|%2C)?){0,3}", kind in "[a-zA-Z ,]{0,12}") {
            let guest = Subscription::new(Audience::Guest, Some(&asked));
            prop_assert!(!guest.hears(&kind) || kind == CONFIG || kind == DEVICE || kind == RESTORED, "{}", kind);
            let alone = Subscription::new(Audience::Host, Some(&format!("type={kind}")));
            prop_assert_eq!(alone.hears(&kind), !kind.contains(',') , "{}", kind);
        }
    }

    #[test]
    fn only_the_types_that_were_asked_for_are_heard() {
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
    fn an_event_is_read_with_and_without_its_members() {
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
    fn an_event_on_many_lines_becomes_one_and_keeps_its_value() {
        let body = "{\r\n  \"type\": \"config\",\n\t\"metadata\":\n[1,\r2, \"a\\nb\"]\n}\n";
        let line = one_line(Document::read(body.into()).unwrap());
        assert_eq!(line.find(['\n', '\r']), Some(line.len() - 1), "{line}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&line), value(body));
    }

    #[test]
    fn what_is_no_event_is_refused_with_its_reason() {
        for (body, why) in [
            ("", "JSON ends too early"),
            ("{\"type\":\"a\"", "JSON ends too early"),
            ("[]", "JSON of another shape than expected"),
            ("{\"type\":7}", "the type is no text"),
            ("{}x", "something follows the JSON at byte 2"),
        ] {
            let error = Posted::parse(body.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), why, "{body}");
        }
    }
}
