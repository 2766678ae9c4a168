//! The API that the host calls over vsock.

pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod mounts;
pub(crate) mod operations;
pub(crate) mod port_forward;
pub(crate) mod server;
pub(crate) mod sftp;
