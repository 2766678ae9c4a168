//! The whole core.

pub mod history;
