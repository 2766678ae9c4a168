//! State and metrics of the guest for the host, from files of the kernel.

#[cfg(feature = "alloc")]
pub mod metrics;
pub mod proc;
#[cfg(feature = "alloc")]
pub mod state;
