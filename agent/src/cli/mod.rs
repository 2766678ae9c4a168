//! The command line: options, `--check`, and the built-in client of the running agent.

pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod help;
pub(crate) mod options;
pub(crate) mod print;
mod status;
