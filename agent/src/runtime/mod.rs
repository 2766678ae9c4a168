//! The base of all other modules: tasks, timers, child processes, small files and the log.

pub(crate) mod children;
pub(crate) mod clock;
pub(crate) mod digest;
pub(crate) mod log;
pub(crate) mod notify;
pub(crate) mod permits;
pub(crate) mod random;
pub(crate) mod reactor;
pub(crate) mod run;
pub(crate) mod run_dir;
#[cfg(test)]
pub(crate) mod scratch;
pub(crate) mod small_files;
pub(crate) mod wake;
pub(crate) mod yield_budget;
