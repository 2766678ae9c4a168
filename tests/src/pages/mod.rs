//! What the generated pages share: files and words.

pub mod file;
pub mod kernels;
pub mod text;
pub mod ways;
