//! `file` and `sftp`: the host's half.

pub(crate) mod args;
pub(crate) mod commands;
pub(crate) mod local_directory;
mod progress;
pub(crate) mod session;
mod sftp;
mod transfer;
pub(crate) mod tree;
mod unlike;
