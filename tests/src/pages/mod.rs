//! What the generated pages share: notes, pictures, words.

pub mod notes;
pub mod svg;
pub mod text;
pub mod ways;
