//! What agents report, read as strictly as hosts read it.

pub mod metrics;
pub mod state;
