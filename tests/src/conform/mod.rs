//! Conformance: claims about any agent, from docs/protocol (P§n), checked on the wire with mote and
//! with Debian's Go agents. `check` runs them, and writes the results side by side.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any outcome that a claim does not name is a failure of the claim"
)]

mod check;
pub mod checks;
pub mod client;
pub mod exec;
pub mod sftp;
pub mod wire;
pub mod ws;

pub use check::{
    Check, Claim, Group, Miss, Pace, SOON, Seen, equal, has, hold, look, render, same,
};

pub use crate::world::Column;

/// What checks use, and tests that talk to an agent as its host does.
pub mod prelude {
    pub use super::client::{Agent, Caller, locked};
    pub use super::exec::{Exec, Running, output, plain, run, script, terminal, with};
    pub use super::wire::{Answer, TIMEOUT, Wire};
    pub use super::ws::{Message, Ws};
    pub use super::{Check, Claim, Group, Miss, SOON, equal, has, hold, same};
    pub use crate::prelude::*;
}
