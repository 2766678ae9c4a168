//! The daemon's control socket, from its client's side.

pub mod client;
pub mod known;
