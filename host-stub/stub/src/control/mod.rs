//! The control socket and its server.

pub mod host;
pub mod server;
