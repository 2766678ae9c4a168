//! Start-up: the agent's lock, the agent that runs already, units of others, kernel modules, devices, the wait for them, the first listener, the
//! sandbox, and the start anew.

pub(crate) mod listen;
pub(crate) mod prepare;
pub(crate) mod sandbox;
pub(crate) mod wait;
