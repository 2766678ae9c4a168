//! The simulated system below the agent. Each file replaces the agent's module of that name, with
//! its interface; `absent` and `here` replace several.

pub(crate) mod absent;
pub(crate) mod first_boot;
pub(crate) mod here;
pub(crate) mod resume;
pub(crate) mod sys;
pub(crate) mod system;
pub(crate) mod transport;
