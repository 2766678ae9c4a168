//! The control socket: what serves it, and who asks over it.

pub mod host;
pub mod server;
