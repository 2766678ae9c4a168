//! What a running host knows and plays.

pub(crate) mod agent_state;
pub(crate) mod events;
pub(crate) mod fault;
pub(crate) mod operations;
mod state;

pub(crate) use state::{Daemon, Life, Live};
