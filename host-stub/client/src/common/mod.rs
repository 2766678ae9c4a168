//! Functions that all other modules use.

pub mod clock;
pub mod json;
pub mod limits;
pub mod pair;
pub mod printable;
pub mod random;
pub mod shell;
pub mod units;
pub mod whole_file;
