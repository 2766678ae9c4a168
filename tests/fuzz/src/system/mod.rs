//! Input from the kernel and the guest's files, names, and counters.

pub mod certificate;
pub mod counters;
pub mod disk;
pub mod names;
pub mod netlink;
pub mod proc;
