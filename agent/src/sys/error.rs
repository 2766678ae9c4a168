//! A failed system call as a message.

use std::fmt;
use std::io;

/// A failed system call, displayed as `WHAT: REASON`, for modules that only report failures.
#[derive(Debug)]
pub(crate) struct SystemError {
    what: &'static str,
    source: io::Error,
}

impl SystemError {
    pub(crate) fn of(what: &'static str, source: io::Error) -> Self {
        Self { what, source }
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.what, self.source)
    }
}
