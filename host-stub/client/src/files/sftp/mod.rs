//! SFTP, version 3, as a client speaks it.

pub mod client;
mod packet;
pub mod transfer;
pub mod wire;
