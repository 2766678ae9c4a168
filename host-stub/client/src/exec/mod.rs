//! The host's side of `exec` and `shell`.

pub mod output;
pub mod request;
pub mod run;
pub mod sockets;
pub mod terminal;
