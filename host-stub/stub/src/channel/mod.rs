//! The host's side of the status port.

mod qmp;
pub mod ring;
pub mod serial;
