//! A fleet in simulation: the agent's real status machine, thousands of times on one virtual clock,
//! against a model of the host that restarts, fails, or just lives on. What comes of it is
//! `docs/fleet.md`.

mod call;
pub mod clock;
mod cpu;
mod daemon;
pub mod load;
pub mod model;
pub mod page;
pub mod picture;
pub mod study;
mod vm;
mod world;

pub use world::run;
