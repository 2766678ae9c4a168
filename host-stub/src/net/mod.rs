//! Connections: certificates, TLS, HTTP, limits of time and number.

pub(crate) mod certs;
pub(crate) mod http;
pub(crate) mod pump;
pub(crate) mod slots;
pub(crate) mod stream;
pub(crate) mod tls;
