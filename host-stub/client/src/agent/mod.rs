//! Calls to an agent, as a server makes them.

pub mod call_failure;
pub mod client;
pub mod websocket;
