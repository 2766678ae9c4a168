//! The reactor: mote-reactor or, with the feature `async-io`, the crate async-io.

#[cfg(feature = "async-io")]
mod async_io;
pub(crate) mod jumps;

#[cfg(feature = "async-io")]
pub(crate) use self::async_io::{Async, Timer, block_on};
#[cfg(not(feature = "async-io"))]
pub(crate) use mote_reactor::{Async, Timer, block_on};
