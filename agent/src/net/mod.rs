//! Connections to peers: TLS, HTTP/1.1 as server and as client, and upgraded connections.

pub(crate) mod host_call;
pub(crate) mod relay;
pub(crate) mod serve;
mod session;
pub(crate) mod stream;
pub(crate) mod tickets;
pub(crate) mod tls;
pub(crate) mod tls_error;
pub(crate) mod tls_types;
pub(crate) mod websocket;
