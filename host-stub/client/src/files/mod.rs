//! The host's side of `file` and `sftp`.

pub mod args;
pub mod commands;
pub mod local_directory;
pub mod session;
pub mod sftp;
pub mod tree;
