//! What of a guest's request goes to the host, and how it is put (P§5.3, P§5.4).

use core::fmt::{Result, Write};

use crate::http::target::query as parameter;
use crate::json;
use crate::path::Segments;

use super::route::Ask;

/// Writes path and query as the host is to see them: the path is the guest's own bytes.
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
        // These take no parameters, and an image's are dropped (P§5.4).
        Ask::Info
        | Ask::SetState
        | Ask::ConfigKeys
        | Ask::ConfigValue
        | Ask::MetaData
        | Ask::ImageExport => {}
    }
    Ok(())
}

/// Whether a header of the guest's goes to the host. A token and a condition always do; an image
/// download takes all that is not about the connection (P§5.4).
#[must_use]
pub fn forwards(ask: Ask, name: &str, value: &[u8]) -> bool {
    let is = |word: &str| name.eq_ignore_ascii_case(word);
    if is("authorization") {
        return value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    }
    if ask == Ask::ImageExport { !is_hop(name) } else { is("if-match") }
}

/// Whether a header of the host's goes to the guest with a stream.
#[must_use]
pub fn returns(name: &str) -> bool {
    !is_hop(name) && !name.eq_ignore_ascii_case("content-type")
}

/// About one connection, or written by us.
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

/// The volume type that a body posted to `.../volumes/{type}` lacks (P§5.3), still encoded.
#[must_use]
pub fn missing_type<'p>(path: &'p str, body: &[u8]) -> Option<&'p str> {
    let segments = Segments::split(path).ok()?;
    if segments.count() != 5 || !segments.is(3, "volumes") || !segments.is(1, "storage-pools") {
        return None;
    }
    match json::member(body, "type") {
        Ok(None | Some(b"\"\"")) => Some(segments.raw(4)),
        Ok(Some(_)) | Err(_) => None,
    }
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
    fn only_what_the_host_reads_is_sent_with_the_path() {
        assert_eq!(target(Ask::OperationWait, "/w", Some("timeout=3")), "/w?timeout=3");
        assert_eq!(target(Ask::ImageExport, "/i", Some("secret=1")), "/i");
        assert_eq!(target(Ask::ConfigValue, "/1.0/config/user.%2f", None), "/1.0/config/user.%2f");
    }

    #[test]
    fn tokens_pass_and_other_credentials_do_not() {
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
        assert_eq!(missing_type(path, b"{\"name\":\"v\"}"), Some("custom"));
        assert_eq!(missing_type(path, b"{\"type\":\"block\"}"), None);
        assert_eq!(missing_type("/1.0/storage-pools/p/volumes", b"{}"), None);
    }
}
