//! The status port, from the host's side.

mod qmp;
pub(crate) mod ring;
pub(crate) mod serial;
