//! The host's side of the status port.

pub mod ring;
pub mod serial;
