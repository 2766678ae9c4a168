//! What every other room uses.

pub(crate) mod clock;
pub(crate) mod json;
pub(crate) mod limits;
pub(crate) mod pair;
pub(crate) mod printable;
pub(crate) mod random;
pub(crate) mod shell;
pub(crate) mod units;
pub(crate) mod whole_file;
