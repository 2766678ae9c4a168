//! The command line: options, `--check`, and the built-in client of the running agent.

pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod options;
pub(crate) mod print;
