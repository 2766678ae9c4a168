//! The simulated system below the agent. Each file replaces the agent's module of that name, with
//! its interface.

pub(crate) mod first_boot;
pub(crate) mod guest_path;
pub(crate) mod here;
pub(crate) mod resume;
pub(crate) mod sys;
pub(crate) mod system;
pub(crate) mod transport;
pub(crate) mod unwatched;
