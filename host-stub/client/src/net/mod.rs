//! Connections: certificates, TLS, HTTP, limits of time and number.

pub mod http;
pub mod pump;
pub mod slots;
pub mod stream;
pub mod tls;
