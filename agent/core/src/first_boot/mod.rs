//! Work done once at the start, before the agent announces itself: templates and NIC configuration.

pub mod credentials;
pub mod nic;
pub mod template;
