//! Formats.

pub mod json;
pub mod sftp;
pub mod ws;
pub mod yaml;
