//! SFTP, version 3, as a client speaks it.

pub(crate) mod client;
mod packet;
pub(crate) mod transfer;
pub(crate) mod wire;
