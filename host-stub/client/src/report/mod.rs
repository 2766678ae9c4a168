//! Agents' reports, decoded as strictly as hosts decode them.

pub mod metrics;
pub mod state;
