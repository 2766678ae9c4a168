//! Plays the LXD or Incus host for guest agents, so that an agent can be run and tested without either. It shares no code
//! with the agent, so that the two cannot agree on a mistake.
//!
//! ```text
//! control  serves the daemon's own socket; which instances are served
//! devlxd   guests' requests           channel  the status port
//! daemon   instances, what is known of their VMs and agents, and what is wrong with them
//! ```

#![forbid(unsafe_code)]
#![allow(
    missing_debug_implementations,
    reason = "only this workspace links it, and nothing prints them"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "nothing here opens a file below a directory that a guest names"
)]

pub mod channel;
pub mod control;
pub mod daemon;
pub mod devlxd;
