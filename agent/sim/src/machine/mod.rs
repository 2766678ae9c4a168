//! The base of the simulation: chance, time, tasks and network.

mod dice;
mod executor;
mod handshake;
mod kernel;
pub(crate) mod net;
mod wait;

pub use dice::Dice;
pub use executor::{MILLI, Micros, SECOND};
pub(crate) use executor::{Process, Sim, TaskId, Zone};
pub(crate) use handshake::{Certificate, Hello};
pub(crate) use kernel::{AgentProcess, Kernel, Stage};
pub(crate) use net::{Broken, Listener, Net, NoWay, Place, Stream};
pub(crate) use wait::{Signal, Timer, either, sleep, within};
