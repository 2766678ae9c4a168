//! SFTP, version 3, as a client speaks it.

pub(crate) mod client;
pub(crate) mod transfer;
pub(crate) mod wire;
