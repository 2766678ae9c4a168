//! State and metrics of the guest, from kernel files.

#[cfg(feature = "alloc")]
pub mod metrics;
pub mod proc;
#[cfg(feature = "alloc")]
pub mod state;
