//! The other sides: a scripted QEMU, an agent, a guest, and the daemon under test as a process.

pub(crate) mod agent;
pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod qmp;
pub(crate) mod sftp;
pub(crate) mod shell;
