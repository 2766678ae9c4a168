//! From one agent to the next: the lock, the agent that runs already, units of others, the start anew, the new root, and
//! what the last one wrote of itself.

pub(crate) mod incumbent;
pub(crate) mod lock;
pub(crate) mod lock_error;
mod lock_file;
pub(crate) mod new_root;
pub(crate) mod others;
pub(crate) mod processes;
pub(crate) mod reexec;
pub(crate) mod running;
pub(crate) mod view;
