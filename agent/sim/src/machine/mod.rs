//! What everything runs on: chance, time, tasks, and a network, all without a real one.

pub(crate) mod dice;
pub(crate) mod executor;
pub(crate) mod handshake;
pub(crate) mod kernel;
pub(crate) mod net;
mod signal;
mod tasks;
pub(crate) mod wait;
