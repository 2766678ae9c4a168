//! Instances: model and storage.

pub mod create;
mod flavour;
mod model;
pub mod share;
pub mod store;
pub mod vsock_device;

pub use flavour::Flavour;
pub use model::{
    AGENT, CONFIG_DISK, Channel, GENERATION, Instance, POWER, READY, UUID, VSOCK_ID, Vsock,
};
