//! The parts of a guest's request that are forwarded to the host (P§5.3, P§5.4).

use core::fmt::{Result, Write};

use crate::http::query as parameter;

use super::route::Ask;

/// Writes the target of the request to the host: the guest's path byte for byte, and the query
/// parameters that `ask` takes. Errors: only those of `out`.
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
pub fn forwards(ask: Ask, name: &str, value: &[u8]) -> bool {
    let is = |word: &str| name.eq_ignore_ascii_case(word);
    if is("authorization") {
        return value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    }
    if ask == Ask::ImageExport { !is_hop(name) } else { is("if-match") }
}

/// Returns whether a header of the host's answer is forwarded to the guest with an image.
pub fn returns(name: &str) -> bool {
    !is_hop(name) && !name.eq_ignore_ascii_case("content-type")
}

/// Returns true for hop-by-hop headers and those that the agent writes itself.
fn is_hop(name: &str) -> bool {
    #[rustfmt::skip] // several in a line
    const HOP: [&str; 13] = [
        "connection", "content-length", "cookie", "expect", "host", "keep-alive",
        "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    ];
    HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn forwards_tokens_but_no_other_credentials() {
        assert!(forwards(Ask::Json, "Authorization", b"Bearer x"));
        assert!(!forwards(Ask::Json, "Authorization", b"Basic x"));
        assert!(!forwards(Ask::ImageExport, "authorization", b"Basic x"));
        assert!(!forwards(Ask::Json, "X-Other", b"1"));
        assert!(forwards(Ask::ImageExport, "X-Other", b"1"));
        assert!(!forwards(Ask::ImageExport, "Transfer-Encoding", b"chunked"));
    }

    #[test]
    fn sends_only_parameters_that_the_host_reads() {
        assert_eq!(target(Ask::OperationWait, "/w", Some("timeout=3")), "/w?timeout=3");
        assert_eq!(target(Ask::ImageExport, "/i", Some("secret=1")), "/i");
        assert_eq!(target(Ask::ConfigValue, "/1.0/config/user.%2f", None), "/1.0/config/user.%2f");
    }
}
