//! Instances: model and storage.

mod model;
pub mod share;
pub mod store;
pub mod vsock_device;

pub use model::{
    AGENT, CONFIG_DISK, Channel, Flavour, GENERATION, Instance, POWER, READY, Server, UUID,
    VSOCK_ID, Vsock,
};
