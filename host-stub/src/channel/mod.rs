//! The status port, from the host's side.

pub(crate) mod ring;
pub(crate) mod serial;
