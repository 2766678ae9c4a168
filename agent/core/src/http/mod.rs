//! HTTP/1.1 (RFC 9112), sans-IO: heads, bodies, replies, and the states of one connection.
//!
//! Refuses ambiguous input instead of guessing: two framings, folded lines, bare carriage returns,
//! bare line feeds between chunks, signs in lengths.

pub mod admission;
pub mod body;
pub mod connection;
pub mod head;
pub mod path;
pub mod query;
pub mod reply;
