//! Client of the daemon's control socket.

pub mod client;
pub mod known;
