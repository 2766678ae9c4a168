//! What the agent reads at start: the host's files, the guest's policy, and host info kept by an earlier
//! agent.

mod contents;
pub(crate) mod credentials;
pub(crate) mod disk;
pub(crate) mod files;
pub(crate) mod known_host;
pub(crate) mod policy;
pub(crate) mod remember;
mod share;
