//! What the kernel and the guest's files say, names, and what is counted.

pub mod certificate;
pub mod counters;
pub mod disk;
pub mod names;
pub mod netlink;
pub mod proc;
