//! The parts of a guest's request that are forwarded to the host (P§5.3, P§5.4).

use core::fmt::{Result, Write};

use crate::http::path::Segments;
use crate::http::query::query as parameter;
use crate::json::{Value, Writer};

use super::route::Ask;

/// Writes the target of the request to the host: the guest's path byte for byte, and the query
/// parameters that `ask` takes.
///
/// # Errors
/// Only those of `out`.
pub fn write_target(out: &mut impl Write, ask: Ask, path: &str, query: Option<&str>) -> Result {
    out.write_str(path)?;
    match ask {
        Ask::VolumeList => {
            out.write_str("?recursion=1")?;
            if let Some(target) = parameter(query, "target") {
                write!(out, "&target={target}")?;
            }
        }
        Ask::Json | Ask::OperationWait => {
            if let Some(query) = query {
                write!(out, "?{query}")?;
            }
        }
        // These take no parameters; those of an image export are dropped (P§5.4).
        Ask::Info
        | Ask::SetState
        | Ask::ConfigKeys
        | Ask::ConfigValue
        | Ask::MetaData
        | Ask::ImageExport => {}
    }
    Ok(())
}

/// Returns whether a guest's header is forwarded to the host: a bearer token and `If-Match` always;
/// for an image export every header that is not hop-by-hop (P§5.4).
#[must_use]
pub fn forwards(ask: Ask, name: &str, value: &[u8]) -> bool {
    let is = |word: &str| name.eq_ignore_ascii_case(word);
    if is("authorization") {
        return value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    }
    if ask == Ask::ImageExport { !is_hop(name) } else { is("if-match") }
}

/// Returns whether a header of the host's answer is forwarded to the guest with an image.
#[must_use]
pub fn returns(name: &str) -> bool {
    !is_hop(name) && !name.eq_ignore_ascii_case("content-type")
}

/// Returns true for hop-by-hop headers and those that the agent writes itself.
fn is_hop(name: &str) -> bool {
    const HOP: [&str; 13] = [
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop))
}

/// Returns the volume type in the path of `.../volumes/{type}` (P§5.3), still encoded.
#[must_use]
pub fn volume_type(path: &str) -> Option<&str> {
    let segments = Segments::split(path).ok()?;
    let posted =
        segments.count() == 5 && segments.is(3, "volumes") && segments.is(1, "storage-pools");
    posted.then(|| segments.raw(4))
}

/// Returns whether a posted body needs that type: its own is missing or empty.
#[must_use]
pub fn lacks_type(body: Value<'_>) -> bool {
    body.is_object() && body.member("type").is_none_or(|kind| kind.is(""))
}

/// Writes such a body with the type before its other members.
pub fn write_typed(json: &mut Writer<'_>, body: Value<'_>, kind: &str) {
    json.begin_object();
    json.pair("type", kind);
    for (name, value) in body.members().filter(|(name, _)| !name.is("type")) {
        json.member(name, value);
    }
    json.end_object();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn target(ask: Ask, path: &str, query: Option<&str>) -> String {
        let mut out = String::new();
        write_target(&mut out, ask, path, query).unwrap();
        out
    }

    #[test]
    fn volume_lists_are_always_recursive() {
        assert_eq!(target(Ask::VolumeList, "/v", None), "/v?recursion=1");
        assert_eq!(
            target(Ask::VolumeList, "/v", Some("a=b&target=n1")),
            "/v?recursion=1&target=n1"
        );
    }

    #[test]
    fn sends_only_parameters_that_the_host_reads() {
        assert_eq!(target(Ask::OperationWait, "/w", Some("timeout=3")), "/w?timeout=3");
        assert_eq!(target(Ask::ImageExport, "/i", Some("secret=1")), "/i");
        assert_eq!(target(Ask::ConfigValue, "/1.0/config/user.%2f", None), "/1.0/config/user.%2f");
    }

    #[test]
    fn forwards_tokens_but_no_other_credentials() {
        assert!(forwards(Ask::Json, "Authorization", b"Bearer x"));
        assert!(!forwards(Ask::Json, "Authorization", b"Basic x"));
        assert!(!forwards(Ask::ImageExport, "authorization", b"Basic x"));
        assert!(!forwards(Ask::Json, "X-Other", b"1"));
        assert!(forwards(Ask::ImageExport, "X-Other", b"1"));
        assert!(!forwards(Ask::ImageExport, "Transfer-Encoding", b"chunked"));
    }

    #[test]
    fn a_volume_without_a_type_gets_the_one_of_its_path() {
        let path = "/1.0/storage-pools/p/volumes/custom";
        assert_eq!(volume_type(path), Some("custom"));
        assert_eq!(volume_type("/1.0/storage-pools/p/volumes"), None);
        for (body, typed) in [
            (r#"{"name" : "v"}"#, Some(r#"{"type":"custom","name":"v"}"#)),
            (r#"{"type":"","a":[1, 2]}"#, Some(r#"{"type":"custom","a":[1, 2]}"#)),
            ("{}", Some(r#"{"type":"custom"}"#)),
            (r#"{"type":"block"}"#, None),
            (r#"{"type":null}"#, None),
            ("[]", None),
        ] {
            let body = Value::parse(body.as_bytes()).unwrap();
            let mut out = String::new();
            write_typed(&mut Writer::new(&mut out), body, "custom");
            assert_eq!(lacks_type(body).then_some(out.as_str()), typed);
        }
    }
}
