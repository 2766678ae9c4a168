//! SFTP version 3, the client's side.

pub mod client;
pub mod transfer;
pub mod wire;
