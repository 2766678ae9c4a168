//! Calls to an agent, as a server makes them.

pub mod client;
pub mod trouble;
pub mod upgrade;
pub mod websocket;
