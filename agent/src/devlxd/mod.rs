//! The API for the guest: the devlxd socket.

pub(crate) mod admission;
mod ready;
pub(crate) mod server;
pub(crate) mod socket;
