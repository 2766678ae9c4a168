//! The decisions about TLS that are ours: the key of a pinned certificate, reading PEM, and when to
//! make a full handshake.

pub mod certificate;
pub mod pem;
pub mod tickets;
