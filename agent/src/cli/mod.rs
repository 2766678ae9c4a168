//! The commands: `--check`, `connect`, and the built-in client of the running agent.

pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod help;
