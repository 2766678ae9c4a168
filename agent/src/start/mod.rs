//! Start-up: the agent's lock, the agent that runs already, units of others, kernel modules, devices, the wait for them, the first listener, the
//! sandbox, and the start anew.

pub(crate) mod devices;
pub(crate) mod incumbent;
pub(crate) mod listen;
pub(crate) mod lock;
pub(crate) mod modules;
pub(crate) mod new_root;
pub(crate) mod others;
pub(crate) mod prepare;
pub(crate) mod reexec;
pub(crate) mod sandbox;
pub(crate) mod uevent;
pub(crate) mod wait;
