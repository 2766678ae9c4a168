//! Files and words that generated pages share.

pub mod file;
pub mod kernels;
pub mod text;
pub mod ways;
