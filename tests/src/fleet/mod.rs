//! Simulation of a fleet: the agent's real status machine, thousands of times on one virtual clock,
//! with a model of a host that restarts or fails. `docs/fleet.md` has the results.

mod call;
pub mod clock;
mod cpu;
mod daemon;
mod event;
mod hosting;
pub mod load;
pub mod model;
pub mod page;
pub mod picture;
pub mod study;
mod vm;
mod world;

pub use world::run;
