//! The guest's side: what a client on `/dev/lxd/sock` or `/dev/incus/sock` may ask (P§5).
//!
//! Almost everything is the host's to answer; this module decides what is asked and how the answer
//! is shown. It never interprets what it only forwards.

pub mod answer;
pub mod forward;
pub mod route;
