//! What programs in the guest send, and who of them gives way.

pub mod admission;
pub mod answer;
pub mod devlxd;
