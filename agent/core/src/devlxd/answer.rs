//! Turns the host's answer into devlxd's answer (P§5.2, P§5.4). The host wraps answers in
//! envelopes; devlxd does not. JSON passes through byte for byte, text is unquoted, errors become
//! plain text.

use alloc::vec::Vec;

use crate::flavour::Flavour;
use crate::json::{Document, Envelope, Kind, Value, unescape_within};

use super::route::Ask;

/// Maximum length of a forwarded error text, in bytes; the rest is dropped.
const ERROR_TEXT: usize = 1024;

/// Status and type of an answer.
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

/// Converts the host's answer to `ask` into the client's. A value that passes through is decoded in
/// place, because there is no room for two long answers.
pub fn present(flavour: Flavour, ask: Ask, status: u16, mut body: Vec<u8>) -> (Shown, Vec<u8>) {
    let envelope = match Envelope::parse(&body) {
        Ok(envelope) => envelope,
        // Some hosts refuse an unknown client in plain text (P§5.4).
        Err(_) if status >= 400 => {
            let line = body.trim_ascii();
            let line = line.get(..line.len().min(ERROR_TEXT)).unwrap_or_default();
            return error(status, str::from_utf8(line).map_or(Vec::new(), |_| line.into()));
        }
        Err(_) => {
            let shown = Shown { status: 500, body: Body::Text };
            return (shown, b"the host's answer is not the expected JSON".into());
        }
    };
    let metadata = envelope.metadata;
    if envelope.kind == Kind::Error || status >= 400 {
        let is_code = envelope.kind == Kind::Error && envelope.error_code >= 400;
        let mut text = Vec::new();
        let _unquoted = envelope.error.unwrap_or(Value::NULL).unescape(|piece| {
            text.extend(piece.bytes().take(ERROR_TEXT - text.len()));
            Ok(())
        });
        return error(if is_code { envelope.error_code } else { status }, text);
    }
    let shown = Shown { status: 200, body: if ask.is_raw() { Body::Raw } else { Body::Json } };
    if let Some(changed) = changed(flavour, ask, metadata) {
        return (shown, changed.line().into_bytes());
    }
    let text = metadata.raw();
    let start = text.as_ptr().addr().wrapping_sub(body.as_ptr().addr());
    let mut length = text.len();
    if metadata.is_null() {
        // Without metadata, the body has nothing to return.
        return (shown, if ask.is_raw() { Vec::new() } else { b"null\n".into() });
    }
    if ask.is_raw() {
        // Any type other than a string (PATCH returns null or {}) is an empty text.
        let raw = body.get_mut(start..).and_then(|rest| rest.get_mut(..length));
        length = raw.and_then(unescape_within).unwrap_or_default();
    }
    body.truncate(start + length);
    body.drain(..start);
    if !ask.is_raw() {
        body.push(b'\n');
    }
    (shown, body)
}

/// Returns the JSON for the guest, or `None` if the host's JSON passes through unchanged.
fn changed(flavour: Flavour, ask: Ask, metadata: Value<'_>) -> Option<Document> {
    // A client without a token (P§5.3) must not see the environment.
    if ask == Ask::Info && metadata.member("auth").is_some_and(|auth| auth.is("untrusted")) {
        return Some(Document::new(metadata.raw().len(), |json| {
            json.begin_object();
            for (name, value) in metadata.members().filter(|(name, _)| !name.is("environment")) {
                json.member(name, value);
            }
            json.end_object();
        }));
    }
    // Guests may read only these keys (P§5.3); other URLs are removed from the list.
    let is_own = |url: &Value<'_>| {
        let text = url.raw().trim_start_matches('"');
        text.starts_with("/1.0/config/user.") || text.starts_with("/1.0/config/cloud-init.")
    };
    (ask == Ask::ConfigKeys && flavour != Flavour::Lxd).then(|| {
        Document::new(metadata.raw().len(), |json| {
            json.begin_array();
            metadata.elements().filter(is_own).for_each(|url| json.value(url));
            json.end_array();
        })
    })
}

/// Returns an error answer with this text, or with the status's own text if `text` is empty. A
/// status that is not an error becomes 500.
fn error(status: u16, mut text: Vec<u8>) -> (Shown, Vec<u8>) {
    if text.is_empty() {
        text.extend(crate::http::reply::reason(status).as_bytes());
    }
    text.push(b'\n');
    let status = if (400..600).contains(&status) { status } else { 500 };
    (Shown { status, body: Body::Text }, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(flavour: Flavour, ask: Ask, status: u16, body: &str) -> (Shown, String) {
        let (shown, body) = present(flavour, ask, status, body.into());
        (shown, String::from_utf8(body).unwrap())
    }

    #[test]
    fn a_value_that_passes_through_is_not_copied() {
        for (ask, metadata) in [(Ask::Json, "[1]"), (Ask::ConfigValue, "\"a\\n\"")] {
            let body = sync(metadata).into_bytes();
            let place = body.as_ptr();
            assert_eq!(present(Flavour::Lxd, ask, 200, body).1.as_ptr(), place);
        }
        let missing = "{\"type\":\"sync\"}";
        assert_eq!(shown(Flavour::Lxd, Ask::Json, 200, missing).1, "null\n");
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
    fn forwards_json_unchanged_and_raw_values_unquoted() {
        let json = r#"{"eth0": {"type":"nic"} , "emoji":"\ud83d\ude00"}"#;
        let raw = r##""#cloud-config\nx: \"y\" \ud83d\ude00""##;
        for (ask, metadata, body, expected) in [
            (Ask::Json, json, Body::Json, &*format!("{json}\n")),
            (Ask::ConfigValue, raw, Body::Raw, "#cloud-config\nx: \"y\" \u{1f600}"),
            (Ask::SetState, "{}", Body::Raw, ""),
        ] {
            let found = shown(Flavour::Lxd, ask, 200, &sync(metadata));
            assert_eq!(found, (Shown { status: 200, body }, expected.into()));
        }
    }

    #[test]
    fn keeps_code_and_text_of_the_hosts_errors() {
        for (status, body, expected) in [
            (403, ERROR, "Forbidden\n"),
            (401, "Unauthorized\n", "Unauthorized\n"),
            (404, "", "Not Found\n"),
        ] {
            let found = shown(Flavour::Incus, Ask::Json, status, body);
            assert_eq!(found, (Shown { status, body: Body::Text }, expected.into()));
        }
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
    fn untrusted_callers_and_guests_do_not_see_everything() {
        let info = r#"{"auth":"untrusted","environment":{"a":1},"state":"Ready"}"#;
        let trusted = &info.replace("untrusted", "trusted");
        let keys = r#"["/1.0/config/user.a","/1.0/config/volatile.x","/1.0/config/cloud-init.b"]"#;
        for (flavour, ask, metadata, expected) in [
            (Flavour::Lxd, Ask::Info, info, r#"{"auth":"untrusted","state":"Ready"}"#),
            (Flavour::Lxd, Ask::Info, trusted, trusted),
            (Flavour::Lxd, Ask::ConfigKeys, keys, keys),
            (
                Flavour::Incus,
                Ask::ConfigKeys,
                keys,
                &*keys.replace(r#","/1.0/config/volatile.x""#, ""),
            ),
        ] {
            assert_eq!(shown(flavour, ask, 200, &sync(metadata)).1, format!("{expected}\n"));
        }
    }
}
