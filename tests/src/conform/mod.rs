//! Conformance: claims about any agent, checked on the wire. They are written from docs/protocol
//! (P§n) and checked on mote and on Debian's Go agents. `table` writes the results side by side.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any outcome that a claim does not name is a failure of the claim"
)]

pub mod agent;
mod check;
pub mod checks;
pub mod client;
pub mod exec;
pub mod sftp;
pub mod table;
pub mod wire;
pub mod ws;

pub use check::{Check, Claim, Group, Miss, Pace, SOON, Seen, equal, hold, look, same};

pub use crate::column::Column;
