//! Turns the host's answer into devlxd's (P§5.2, P§5.4). The host wraps answers in envelopes,
//! devlxd does not: JSON passes through byte for byte, text is unquoted, errors become plain text.

use core::fmt;
use core::ops::Range;

use crate::flavour::Flavour;
use crate::json::{Envelope, Kind, Value, Writer, unescape_within};

use super::route::Ask;

/// Longest error text passed on, bytes; the rest is dropped.
const ERROR_TEXT: usize = 1024;

/// Status and type of the body that was written to the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub status: u16,
    pub body: Body,
}

/// The three formats of P§5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// `application/json`; ends in a newline.
    Json,
    /// `application/octet-stream`, without a newline.
    Raw,
    /// `text/plain`, an error; ends in a newline.
    Text,
}

/// Returns the start of the error text for an unreachable host; the cause follows. Each Go agent
/// has its own wording (P§5.4).
pub fn unreachable(flavour: Flavour, ask: Ask) -> &'static str {
    match (flavour, ask) {
        (Flavour::Incus, Ask::ConfigKeys) => "Failed connecting to the host over vsock: ",
        (Flavour::Incus, _) => "Failed connecting to host over vsock: ",
        (Flavour::LxdOld, _) | (Flavour::Lxd, Ask::ImageExport) => {
            "Failed connecting to LXD over vsock: "
        }
        (Flavour::Lxd, _) => "Failed connecting to devLXD over vsock: ",
    }
}

/// Writes the client's body to `sink`, for the host's answer to `ask`: its `status` and `body`.
pub fn show(
    flavour: Flavour,
    ask: Ask,
    status: u16,
    body: &[u8],
    sink: &mut dyn FnMut(&[u8]),
) -> Shown {
    let envelope = match Envelope::parse(body) {
        Ok(envelope) => envelope,
        // Some hosts refuse an unknown client in plain text (P§5.4).
        Err(_) if status >= 400 => return plain_error(status, body, sink),
        Err(_) => {
            sink(b"the host's answer is not the expected JSON");
            return text(500);
        }
    };
    match envelope.kind {
        Kind::Error => {
            let code = if envelope.error_code >= 400 { envelope.error_code } else { status };
            error(code, envelope.error, sink)
        }
        Kind::Sync | Kind::Async if status >= 400 => error(status, envelope.error, sink),
        Kind::Sync | Kind::Async if ask.is_raw() => {
            // Any type other than a string (PATCH returns null or {}) is an empty text.
            let _unquoted = envelope.metadata.unescape(|piece| {
                sink(piece.as_bytes());
                Ok(())
            });
            Shown { status: 200, body: Body::Raw }
        }
        Kind::Sync | Kind::Async => {
            match change(flavour, ask, envelope.metadata) {
                Some(Change::NoEnvironment) => {
                    without(&mut Writer::new(&mut Sink(sink)), envelope.metadata, "environment");
                }
                Some(Change::GuestKeys) => {
                    guest_keys(&mut Writer::new(&mut Sink(sink)), envelope.metadata);
                }
                None => sink(envelope.metadata.raw().as_bytes()),
            }
            sink(b"\n");
            Shown { status: 200, body: Body::Json }
        }
    }
}

/// How the agent changes the JSON of the host's answer.
enum Change {
    /// Drops `environment`, which an untrusted client must not see.
    NoEnvironment,
    /// Keeps only the keys that guests may read.
    GuestKeys,
}

/// Returns the change that `ask` needs, or `None` if the JSON passes through.
fn change(flavour: Flavour, ask: Ask, metadata: Value<'_>) -> Option<Change> {
    match ask {
        Ask::Info => is_untrusted(metadata).then_some(Change::NoEnvironment),
        Ask::ConfigKeys => (flavour != Flavour::Lxd).then_some(Change::GuestKeys),
        Ask::SetState
        | Ask::ConfigValue
        | Ask::MetaData
        | Ask::ImageExport
        | Ask::VolumeList
        | Ask::OperationWait
        | Ask::Json => None,
    }
}

/// Acts like [`show`] for an answer whose body is a part of the host's: decodes it in place, and
/// returns its range. The caller adds the newline after JSON. Returns `None` for any other answer.
pub fn show_within(
    flavour: Flavour,
    ask: Ask,
    status: u16,
    body: &mut [u8],
) -> Option<(Shown, Range<usize>)> {
    let envelope = Envelope::parse(body).ok()?;
    let metadata = envelope.metadata;
    if envelope.kind == Kind::Error || status >= 400 || change(flavour, ask, metadata).is_some() {
        return None;
    }
    let text = metadata.raw();
    let start = text.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let place = start..start.checked_add(text.len())?;
    // Missing metadata does not point into the body.
    if body.get(place.clone())?.as_ptr() != text.as_ptr() {
        return None;
    }
    if !ask.is_raw() {
        return Some((Shown { status: 200, body: Body::Json }, place));
    }
    let length = unescape_within(body.get_mut(place)?)?;
    Some((Shown { status: 200, body: Body::Raw }, start..start + length))
}

/// Returns the head of an error text. A status that is not an error becomes 500.
fn text(status: u16) -> Shown {
    let status = if (400..600).contains(&status) { status } else { 500 };
    Shown { status, body: Body::Text }
}

/// Writes the `error` of an envelope, or the text of the status if it is empty.
fn error(status: u16, raw: Option<Value<'_>>, sink: &mut dyn FnMut(&[u8])) -> Shown {
    let mut left = ERROR_TEXT;
    let mut written = false;
    if let Some(raw) = raw {
        let _unquoted = raw.unescape(|piece| {
            let piece = piece.as_bytes();
            let kept = piece.get(..left.min(piece.len())).unwrap_or_default();
            left -= kept.len();
            written |= !kept.is_empty();
            sink(kept);
            Ok(())
        });
    }
    if !written {
        sink(crate::http::reply::reason(status).as_bytes());
    }
    sink(b"\n");
    text(status)
}

fn plain_error(status: u16, body: &[u8], sink: &mut dyn FnMut(&[u8])) -> Shown {
    let line = body.trim_ascii();
    let line = line.get(..line.len().min(ERROR_TEXT)).unwrap_or_default();
    if line.is_empty() || core::str::from_utf8(line).is_err() {
        sink(crate::http::reply::reason(status).as_bytes());
    } else {
        sink(line);
    }
    sink(b"\n");
    text(status)
}

/// Returns whether the client has no token, and so must not see `environment` (P§5.3).
fn is_untrusted(metadata: Value<'_>) -> bool {
    metadata.member("auth").is_some_and(|auth| auth.is("untrusted"))
}

/// Writes the object without one member; the others stay unchanged.
fn without(json: &mut Writer<'_>, object: Value<'_>, key: &str) {
    json.begin_object();
    for (name, value) in object.members().filter(|(name, _)| !name.is(key)) {
        json.member(name, value);
    }
    json.end_object();
}

/// Writes those configuration keys of a list of URLs that a guest may read (P§5.3).
fn guest_keys(json: &mut Writer<'_>, list: Value<'_>) {
    json.begin_array();
    for url in list.elements() {
        let text = url.raw().trim_start_matches('"');
        if text.starts_with("/1.0/config/user.") || text.starts_with("/1.0/config/cloud-init.") {
            json.value(url);
        }
    }
    json.end_array();
}

/// Lets formatted text go to a callback that takes pieces.
struct Sink<'s>(&'s mut dyn FnMut(&[u8]));

impl fmt::Write for Sink<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        (self.0)(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(flavour: Flavour, ask: Ask, status: u16, body: &str) -> (Shown, String) {
        let mut out = Vec::new();
        let shown =
            show(flavour, ask, status, body.as_bytes(), &mut |piece| out.extend_from_slice(piece));
        (shown, String::from_utf8(out).unwrap())
    }

    #[test]
    fn forwarded_parts_stay_in_place() {
        let within = |flavour, ask, status, metadata: &str| {
            let mut body = sync(metadata).into_bytes();
            show_within(flavour, ask, status, &mut body).is_some()
        };
        assert!(within(Flavour::Lxd, Ask::Json, 200, "[1]"));
        assert!(within(Flavour::Lxd, Ask::ConfigValue, 200, "\"a\\n\""));
        assert!(!within(Flavour::Lxd, Ask::SetState, 200, "{}"));
        assert!(!within(Flavour::Lxd, Ask::Json, 404, "[1]"));
        assert!(!within(Flavour::Incus, Ask::ConfigKeys, 200, "[]"));
        let missing = b"{\"type\":\"sync\"}";
        assert_eq!(show_within(Flavour::Lxd, Ask::Json, 200, &mut missing.clone()), None);
    }

    fn sync(metadata: &str) -> String {
        format!(
            "{{\"type\":\"sync\",\"status\":\"Success\",\"status_code\":200,\"operation\":\"\",\
             \"error_code\":0,\"error\":\"\",\"metadata\":{metadata}}}\n"
        )
    }

    const ERROR: &str = "{\"type\":\"error\",\"status\":\"\",\"status_code\":0,\"operation\":\"\",\
                         \"error_code\":403,\"error\":\"Forbidden\",\"metadata\":null}\n";

    #[test]
    fn forwards_json_byte_for_byte() {
        let devices = "{\"eth0\": {\"type\":\"nic\"} , \"emoji\":\"\\ud83d\\ude00\"}";
        let (how, text) = shown(Flavour::Lxd, Ask::Json, 200, &sync(devices));
        assert_eq!(how, Shown { status: 200, body: Body::Json });
        assert_eq!(text, format!("{devices}\n"));
    }

    #[test]
    fn raw_values_are_unquoted_and_get_no_newline() {
        let body = sync("\"#cloud-config\\nx: \\\"y\\\" \\ud83d\\ude00\"");
        let (how, text) = shown(Flavour::Lxd, Ask::ConfigValue, 200, &body);
        assert_eq!(how, Shown { status: 200, body: Body::Raw });
        assert_eq!(text, "#cloud-config\nx: \"y\" \u{1f600}");
        assert_eq!(shown(Flavour::Lxd, Ask::SetState, 200, &sync("{}")).1, "");
    }

    #[test]
    fn keeps_code_and_text_of_the_hosts_errors() {
        let (how, text) = shown(Flavour::Lxd, Ask::Json, 403, ERROR);
        assert_eq!((how.status, how.body, text.as_str()), (403, Body::Text, "Forbidden\n"));
        let (how, text) = shown(Flavour::Incus, Ask::Json, 401, "Unauthorized\n");
        assert_eq!((how.status, text.as_str()), (401, "Unauthorized\n"));
        let (how, text) = shown(Flavour::Incus, Ask::Json, 404, "");
        assert_eq!((how.status, text.as_str()), (404, "Not Found\n"));
    }

    #[test]
    fn an_invalid_answer_or_status_of_the_host_is_a_500() {
        for (status, body) in [
            (200, ""),
            (200, "hello"),
            (200, "{\"type\":\"sync\""),
            (200, "[1,2]"),
            (600, ""),
            (999, "{\"type\":\"error\",\"error\":\"no\"}"),
        ] {
            let (how, _) = shown(Flavour::Lxd, Ask::Json, status, body);
            assert_eq!(how, Shown { status: 500, body: Body::Text }, "{status} {body}");
        }
    }

    #[test]
    fn an_unreachable_host_is_reported_in_each_agents_wording() {
        for (flavour, ask, words) in [
            (Flavour::Lxd, Ask::Json, "Failed connecting to devLXD over vsock: "),
            (Flavour::Lxd, Ask::ImageExport, "Failed connecting to LXD over vsock: "),
            (Flavour::LxdOld, Ask::MetaData, "Failed connecting to LXD over vsock: "),
            (Flavour::Incus, Ask::Json, "Failed connecting to host over vsock: "),
            (Flavour::Incus, Ask::ConfigKeys, "Failed connecting to the host over vsock: "),
        ] {
            assert_eq!(unreachable(flavour, ask), words);
        }
    }

    #[test]
    fn an_untrusted_caller_does_not_see_the_environment() {
        let info = "{\"auth\":\"untrusted\",\"environment\":{\"a\":1},\"state\":\"Ready\"}";
        let (_, text) = shown(Flavour::Lxd, Ask::Info, 200, &sync(info));
        assert_eq!(text, "{\"auth\":\"untrusted\",\"state\":\"Ready\"}\n");
        let trusted = info.replace("untrusted", "trusted");
        let (_, text) = shown(Flavour::Lxd, Ask::Info, 200, &sync(&trusted));
        assert_eq!(text, format!("{trusted}\n"));
    }

    #[test]
    fn incus_guests_see_only_their_own_keys() {
        let list =
            "[\"/1.0/config/user.a\",\"/1.0/config/volatile.x\",\"/1.0/config/cloud-init.b\"]";
        let (_, text) = shown(Flavour::Incus, Ask::ConfigKeys, 200, &sync(list));
        assert_eq!(text, "[\"/1.0/config/user.a\",\"/1.0/config/cloud-init.b\"]\n");
        assert_eq!(shown(Flavour::Lxd, Ask::ConfigKeys, 200, &sync(list)).1, format!("{list}\n"));
    }
}
