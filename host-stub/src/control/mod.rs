//! The control socket: what serves it, and who asks over it.

pub(crate) mod client;
pub(crate) mod host;
pub(crate) mod known;
pub(crate) mod server;
