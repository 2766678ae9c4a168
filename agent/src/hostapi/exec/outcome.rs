//! A held request, and why a command did not run.

use mote_core::hostapi::exec::Request;

use crate::runtime::Permit;

/// A request with the permit for its memory.
pub(super) type Held = Box<(Request, Permit)>;

pub(super) struct Failure {
    /// The operation's error.
    pub(super) text: String,
    /// Exit status as a shell reports it, if the command was tried.
    pub(super) code: Option<i32>,
}
