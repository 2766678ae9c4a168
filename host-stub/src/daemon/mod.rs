//! What a running host knows and plays.

pub(crate) mod agent_state;
pub(crate) mod diagnosis;
pub(crate) mod events;
pub(crate) mod fault;
mod live;
pub(crate) mod operations;
mod power;
mod state;
pub(crate) mod vm;

pub(crate) use live::{Life, Live};
pub(crate) use state::Daemon;
