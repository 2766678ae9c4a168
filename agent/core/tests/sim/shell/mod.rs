//! The agent's shell in short: it does with the core what `agent/src` does, on the simulated machine. The files
//! have the names of those that they stand for.

pub(crate) mod agent;
pub(crate) mod devlxd;
pub(crate) mod host_call;
pub(crate) mod hostapi;
pub(crate) mod pump;
pub(crate) mod serve;
