//! What the generated pages share: files, pictures, words.

pub mod file;
pub mod kernels;
pub mod svg;
pub mod text;
pub mod ways;
