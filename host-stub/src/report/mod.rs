//! What agents report, read as strictly as hosts read it.

pub(crate) mod metrics;
pub(crate) mod state;
