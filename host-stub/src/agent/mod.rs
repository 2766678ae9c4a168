//! Calls to an agent, as a host makes them.

pub(crate) mod client;
pub(crate) mod trouble;
pub(crate) mod upgrade;
pub(crate) mod websocket;
