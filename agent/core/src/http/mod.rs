//! HTTP/1.1 (RFC 9112), sans-IO: heads, bodies, replies, and the states of one connection.
//!
//! Refuses ambiguous input instead of guessing: two framings, folded lines, bare carriage returns,
//! bare line feeds between chunks, signs in lengths.

pub mod admission;
pub mod body;
pub mod connection;
pub mod head;
pub mod path;
pub mod reply;

/// Returns the raw value of the first query parameter with that name.
pub fn query<'q>(query: Option<&'q str>, key: &str) -> Option<&'q str> {
    query?.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name == key).then_some(value)
    })
}
