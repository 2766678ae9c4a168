//! Worker processes for work that may hang or take long: this binary again, with a subcommand.

pub(crate) mod after_resume;
pub(crate) mod command;
pub(crate) mod grow;
pub(crate) mod mount;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sftp;
