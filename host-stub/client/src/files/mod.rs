//! The host's side of `file` and `sftp`.

pub mod args;
pub mod commands;
pub mod local_directory;
mod progress;
pub mod session;
pub mod sftp;
mod transfer;
pub mod tree;
