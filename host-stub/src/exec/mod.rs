//! `exec` and `shell`: the host's half.

pub(crate) mod operation;
mod output;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod sockets;
pub(crate) mod tail;
pub(crate) mod terminal;
pub(crate) mod wait;
