//! Reads the configuration at start: the host's files, the guest's policy, and the host info of an
//! earlier agent.

mod contents;
pub(crate) mod files;
pub(crate) mod known_host;
pub(crate) mod policy;
mod share;
