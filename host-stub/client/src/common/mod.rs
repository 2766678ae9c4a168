//! Functions that all other modules use.

pub mod clock;
pub mod limits;
pub mod printable;
pub mod random;
pub mod whole_file;
