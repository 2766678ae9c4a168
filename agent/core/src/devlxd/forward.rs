//! The parts of a guest's request that are forwarded to the host (P§5.3, P§5.4).

use core::fmt::{Result, Write};

use crate::http::query as parameter;

use super::route::Ask;

/// Writes the target of the request to the host: the guest's path byte for byte, and the query
/// parameters that `ask` takes. Errors: only those of `out`.
pub fn write_target(out: &mut impl Write, ask: Ask, path: &str, query: Option<&str>) -> Result {
    out.write_str(path)?;
    if ask == Ask::VolumeList {
        out.write_str("?recursion=1")?;
        if let Some(target) = parameter(query, "target") {
            write!(out, "&target={target}")?;
        }
    }
    // Other requests take no parameters; those of an image export are dropped (P§5.4).
    match query {
        Some(query) if matches!(ask, Ask::Json | Ask::OperationWait) => write!(out, "?{query}"),
        Some(_) | None => Ok(()),
    }
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
    const HOP: &str = "connection content-length cookie expect host keep-alive proxy-authenticate \
        proxy-authorization proxy-connection te trailer transfer-encoding upgrade";
    HOP.split(' ').any(|hop| name.eq_ignore_ascii_case(hop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_only_parameters_that_the_host_reads() {
        for (ask, query, expected) in [
            (Ask::VolumeList, None, "/v?recursion=1"),
            (Ask::VolumeList, Some("a=b&target=n1"), "/v?recursion=1&target=n1"),
            (Ask::OperationWait, Some("timeout=3"), "/v?timeout=3"),
            (Ask::ImageExport, Some("secret=1"), "/v"),
            (Ask::ConfigValue, None, "/v"),
        ] {
            let mut out = String::new();
            write_target(&mut out, ask, "/v", query).unwrap();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn forwards_tokens_but_no_other_credentials() {
        for (name, value, expected) in [
            ("Authorization", "Bearer x", [true, true]),
            ("authorization", "Basic x", [false, false]),
            ("X-Other", "1", [false, true]),
            ("Transfer-Encoding", "chunked", [false, false]),
        ] {
            let all = [Ask::Json, Ask::ImageExport];
            assert_eq!(all.map(|ask| forwards(ask, name, value.as_bytes())), expected, "{name}");
        }
    }
}
