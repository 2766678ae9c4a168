//! The steps of the start: waiting for devices, the first listener, the sandbox.

pub(crate) mod listen;
mod look;
pub(crate) mod prepare;
pub(crate) mod sandbox;
pub(crate) mod wait;
