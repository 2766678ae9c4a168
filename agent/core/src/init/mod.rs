//! Decisions of process 1 in a one-file VM: its configuration ([`plan`]), restarts, the power
//! [`button`], and [`shutdown`].

pub mod button;
pub mod plan;
pub mod shutdown;
