//! The API for clients in the guest, on `/dev/lxd/sock` or `/dev/incus/sock` (P§5).
//!
//! The host answers almost everything. This module decides what to ask it and how to present the
//! answer. It never interprets what it only forwards.

#[cfg(feature = "alloc")]
pub mod answer;
#[cfg(feature = "alloc")]
pub mod exchange;
pub mod forward;
pub mod quota;
pub mod ready;
pub mod route;
