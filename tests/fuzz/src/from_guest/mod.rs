//! Input from programs in the guest, and eviction of their connections.

pub mod admission;
pub mod answer;
pub mod devlxd;
