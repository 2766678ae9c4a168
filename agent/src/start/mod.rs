//! Start-up: the agent's lock, kernel modules, devices, the wait for them, and the first listener.

pub(crate) mod devices;
pub(crate) mod listen;
pub(crate) mod lock;
pub(crate) mod modules;
pub(crate) mod prepare;
pub(crate) mod uevent;
pub(crate) mod wait;
