//! The state of a running host.

pub mod agent_state;
pub mod diagnosis;
pub mod events;
pub mod fault;
mod live;
mod power;
mod state;
pub mod vm;

pub use live::{Life, Live};
pub use state::Daemon;
