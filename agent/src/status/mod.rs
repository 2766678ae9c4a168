//! The status channel to the host, and the status file for the guest.

pub(crate) mod port;
pub(crate) mod pump;
pub(crate) mod search;
pub(crate) mod status_file;
pub(crate) mod without_vsock;
