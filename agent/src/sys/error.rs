//! A failed system call as people read of it: what failed, then the system's reason.

use std::fmt;
use std::io;

/// A failed system call, shown as `WHAT: REASON`. For rooms in which nobody does more about a failure than say it.
#[derive(Debug)]
pub(crate) struct SystemError {
    what: &'static str,
    source: io::Error,
}

impl SystemError {
    /// The failure of what is named so.
    pub(crate) fn of(what: &'static str, source: io::Error) -> Self {
        Self { what, source }
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.what, self.source)
    }
}
