//! Conformance: claims about any agent, checked on the wire. They are written from docs/protocol
//! (P§n) and checked on mote and on Debian's Go agents. `table` writes the results side by side;
//! `reasons` explains the differences.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any outcome that a claim does not name is a failure of the claim"
)]

pub mod agent;
mod check;
pub mod checks;
mod claim;
pub mod client;
pub mod exec;
pub mod reasons;
pub mod sftp;
pub mod table;
pub mod wire;
pub mod world;
pub mod ws;

pub use check::{Check, Group, Pace, Seen, run};
pub use claim::{Claim, Miss, SOON, equal, hold, same};

pub use crate::column::Column;
