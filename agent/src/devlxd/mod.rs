//! The API for the guest: the devlxd socket.

pub(crate) mod admission;
pub(crate) mod server;
pub(crate) mod socket;
