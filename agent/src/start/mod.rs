//! Until there is an agent: the wait for devices, the first listener, the sandbox.

pub(crate) mod error;
pub(crate) mod listen;
mod look;
pub(crate) mod prepare;
pub(crate) mod sandbox;
pub(crate) mod wait;
