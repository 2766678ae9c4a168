//! SFTP version 3, the client's side.

pub mod client;
mod packet;
pub mod transfer;
pub mod wire;
