//! The host, written from `docs/protocol` alone: QEMU's status port, the daemon with its requests
//! to the agent, and its server for guests.

pub(crate) mod calls;
pub(crate) mod daemon;
mod exec;
pub(crate) mod http;
pub(crate) mod pipes;
pub(crate) mod port;
pub(crate) mod server;
