//! The whole agent.

pub mod scenario;
