//! Codecs: JSON, SFTP, websockets, YAML.

pub mod json;
pub mod sftp;
pub mod ws;
pub mod yaml;
