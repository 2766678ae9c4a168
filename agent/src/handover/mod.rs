//! Hands over from one agent to the next: lock, running agent, others' units, re-exec, new root.

pub(crate) mod incumbent;
pub(crate) mod lock;
mod lock_file;
pub(crate) mod others;
pub(crate) mod processes;
pub(crate) mod reexec;
pub(crate) mod running;
pub(crate) mod view;
