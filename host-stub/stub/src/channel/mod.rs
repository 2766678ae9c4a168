//! The status port, from the host's side.

mod qmp;
pub mod ring;
pub mod serial;
