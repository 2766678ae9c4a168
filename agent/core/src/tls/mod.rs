//! TLS decisions: the key of a pinned certificate, PEM, and when to make a full handshake.

pub mod certificate;
pub mod pem;
pub mod tickets;
