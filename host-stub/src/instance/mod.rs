//! Instances: what they are, and how they are kept.

pub(crate) mod create;
mod flavour;
pub(crate) mod initramfs;
pub(crate) mod iso;
mod model;
pub(crate) mod overlay;
pub(crate) mod recipe;
pub(crate) mod share;
pub(crate) mod store;
pub(crate) mod vsock_device;

pub(crate) use flavour::Flavour;
#[cfg(test)]
pub(crate) use model::tests;
pub(crate) use model::{AGENT, Channel, GENERATION, Instance, POWER, READY, UUID, VSOCK_ID, Vsock};
