//! How the host's answer is shown to a guest client (P§5.2, P§5.4): the host speaks in envelopes,
//! devlxd does not. JSON passes through byte for byte, text is unquoted, errors become plain text.

use crate::flavour::Flavour;
use crate::json::{self, Kind};

use super::route::Ask;

/// Longest error text passed on, bytes; the rest of a longer one is dropped.
const ERROR_TEXT: usize = 1024;

/// Status and type of what was put into the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// HTTP status.
    pub status: u16,
    /// How the body is to be labelled.
    pub body: Body,
}

/// The three formats of P§5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// `application/json`, with a newline.
    Json,
    /// `application/octet-stream`, as it is.
    Raw,
    /// `text/plain`, with a newline: an error.
    Text,
}

/// Shows the answer `body`, which came with `status`, to the question `ask`.
pub fn show(
    flavour: Flavour,
    ask: Ask,
    status: u16,
    body: &[u8],
    sink: &mut dyn FnMut(&[u8]),
) -> Shown {
    let envelope = match json::envelope(body) {
        Ok(envelope) => envelope,
        // Some hosts refuse a stranger in plain text (P§5.4).
        Err(_) if status >= 400 => return plain_error(status, body, sink),
        Err(_) => {
            sink(b"the host's answer is not the JSON it should be");
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
            // Anything but a string (PATCH answers null or {}) is an empty text.
            let _unquoted = json::unescape(envelope.metadata, |piece: &[u8]| {
                sink(piece);
                Ok(())
            });
            Shown { status: 200, body: Body::Raw }
        }
        Kind::Sync | Kind::Async => {
            match (ask, flavour) {
                (Ask::Info, _) if is_untrusted(envelope.metadata) => {
                    without(envelope.metadata, "environment", sink);
                }
                (Ask::ConfigKeys, Flavour::Incus | Flavour::LxdOld) => {
                    guest_keys(envelope.metadata, sink);
                }
                _ => sink(envelope.metadata),
            }
            sink(b"\n");
            Shown { status: 200, body: Body::Json }
        }
    }
}

fn text(status: u16) -> Shown {
    Shown { status, body: Body::Text }
}

/// The `error` of an envelope, or the status' own words if it is empty.
fn error(status: u16, raw: Option<&[u8]>, sink: &mut dyn FnMut(&[u8])) -> Shown {
    let mut left = ERROR_TEXT;
    let mut said = false;
    if let Some(raw) = raw {
        let _unquoted = json::unescape(raw, |piece: &[u8]| {
            let kept = piece.get(..left.min(piece.len())).unwrap_or_default();
            left -= kept.len();
            said |= !kept.is_empty();
            sink(kept);
            Ok(())
        });
    }
    if !said {
        sink(crate::http::reply::reason(status).as_bytes());
    }
    sink(b"\n");
    text(if (400..600).contains(&status) { status } else { 500 })
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

/// P§5.3: a caller without a token must not see `environment`.
fn is_untrusted(metadata: &[u8]) -> bool {
    matches!(json::member(metadata, "auth"), Ok(Some(b"\"untrusted\"")))
}

/// The object without one member, otherwise as it was.
fn without(object: &[u8], key: &str, sink: &mut dyn FnMut(&[u8])) {
    sink(b"{");
    let mut first = true;
    for (name, value) in json::members(object) {
        if json::is_text(name, key) {
            continue;
        }
        if !first {
            sink(b",");
        }
        first = false;
        sink(name);
        sink(b":");
        sink(value);
    }
    sink(b"}");
}

/// The configuration keys that a guest may know of (P§5.3), of a list of their URLs.
fn guest_keys(list: &[u8], sink: &mut dyn FnMut(&[u8])) {
    sink(b"[");
    let mut first = true;
    for url in json::elements(list) {
        let allowed = [b"\"/1.0/config/user.".as_slice(), b"\"/1.0/config/cloud-init."];
        if !allowed.iter().any(|prefix| url.starts_with(prefix)) {
            continue;
        }
        if !first {
            sink(b",");
        }
        first = false;
        sink(url);
    }
    sink(b"]");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, string::String, vec::Vec};

    fn shown(flavour: Flavour, ask: Ask, status: u16, body: &str) -> (Shown, String) {
        let mut out = Vec::new();
        let shown = show(flavour, ask, status, body.as_bytes(), &mut |piece| {
            out.extend_from_slice(piece);
        });
        (shown, String::from_utf8(out).unwrap())
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
    fn json_passes_through_byte_for_byte() {
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
    fn the_hosts_errors_keep_their_code_and_text() {
        let (how, text) = shown(Flavour::Lxd, Ask::Json, 403, ERROR);
        assert_eq!((how.status, how.body, text.as_str()), (403, Body::Text, "Forbidden\n"));
        let (how, text) = shown(Flavour::Incus, Ask::Json, 401, "Unauthorized\n");
        assert_eq!((how.status, text.as_str()), (401, "Unauthorized\n"));
        let (how, text) = shown(Flavour::Incus, Ask::Json, 404, "");
        assert_eq!((how.status, text.as_str()), (404, "Not Found\n"));
    }

    #[test]
    fn nonsense_from_the_host_is_a_500() {
        for body in ["", "hello", "{\"type\":\"sync\"", "[1,2]"] {
            let (how, _) = shown(Flavour::Lxd, Ask::Json, 200, body);
            assert_eq!(how, Shown { status: 500, body: Body::Text }, "{body}");
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
