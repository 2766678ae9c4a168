//! The base of all other modules: tasks, timers, child processes, small files and the log.

pub(crate) mod children;
pub(crate) mod clock;
pub(crate) mod digest;
pub(crate) mod io_error;
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

pub(crate) use children::{Child, Ended};
pub(crate) use clock::{
    LATER_LOOK_INTERVAL, LOOK_INTERVAL, look_for, look_interval, now, sleep, until, within,
};
pub(crate) use digest::{hex, sha256};
pub(crate) use io_error::{io_error, io_error_of};
pub(crate) use permits::{Permit, Semaphore};
pub(crate) use reactor::Async;
pub(crate) use run::Task;
#[cfg(test)]
pub(crate) use run::block_on;
#[cfg(test)]
pub(crate) use scratch::{Scratch, chmod, put, put_mode, scratch};
pub(crate) use small_files::{
    MAX_DOCUMENT, is_there, make_directory, open_regular, read_bounded, read_if_there,
    read_regular, read_text, read_to_end, text_of, write_lasting, write_small,
};
pub(crate) use wake::{NEVER, Signal};
pub(crate) use yield_budget::Fair;
