//! The commands: `--check`, `status`, and the built-in client of the running agent.

pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod help;
mod status;
