//! Input from the host, and the state machines that it drives.

pub mod event;
pub mod exec;
pub mod mount;
pub mod operation;
pub mod peer;
pub mod policy;
pub mod serial;
pub mod status_ops;
