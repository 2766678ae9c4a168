//! The base of the simulation: chance, time, tasks and network.

pub(crate) mod dice;
pub(crate) mod executor;
pub(crate) mod handshake;
pub(crate) mod kernel;
pub(crate) mod net;
mod signal;
mod tasks;
pub(crate) mod wait;
