//! Emulates the LXD or Incus host for guest agents, so that an agent can be run and tested without
//! either. It shares no code with the agent, so that the two cannot agree on a mistake.
//!
//! ```text
//! control  the daemon's own socket; starts and ends the service of instances
//! devlxd   guests' requests           channel  the status port
//! daemon   instances, the state of their VMs and agents, and its diagnosis
//! ```

#![forbid(unsafe_code)]
#![allow(missing_debug_implementations, missing_docs, reason = "this crate is internal")]
#![allow(clippy::disallowed_methods, reason = "opens no file below a path that a guest chose")]

pub mod channel {
    pub mod ring;
    pub mod serial;
}
pub mod control;
pub mod daemon;
pub mod devlxd;
