//! The peers of a test: a scripted QEMU, agent and guest, and the daemon under test as a process.

pub(crate) mod agent;
pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod qmp;
pub(crate) mod sftp;
pub(crate) mod shell;
