//! The host's side of `exec` and `shell`.

mod output;
pub mod request;
pub mod run;
pub mod sockets;
pub mod tail;
pub mod terminal;
pub mod wait;
