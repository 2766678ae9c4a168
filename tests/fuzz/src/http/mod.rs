//! HTTP/1.1 in both directions.

pub mod body;
pub mod connection_ops;
pub mod head;
pub mod path;
pub mod reply;
