//! HTTP/1.1 (RFC 9112) as pure byte work: heads, bodies, replies, and one connection's life.
//!
//! What could be read in two ways is refused rather than guessed at: two framings, bare line feeds,
//! folded lines, signs in lengths.

pub mod body;
pub mod connection;
pub mod head;
pub mod reply;
pub mod target;
