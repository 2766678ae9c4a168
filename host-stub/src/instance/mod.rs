//! Instances: what they are, and how they are kept.

pub(crate) mod create;
mod flavour;
mod model;
pub(crate) mod share;
pub(crate) mod store;

pub(crate) use flavour::Flavour;
#[cfg(test)]
pub(crate) use model::tests;
pub(crate) use model::{AGENT, Channel, Instance, POWER, READY, VSOCK_ID, Vsock};
