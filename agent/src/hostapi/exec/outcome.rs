//! The result of a command's process, and why there may be none.

use mote_core::hostapi::exec::Request;

use crate::runtime::permits::Permit;

/// A request with the permit for its memory.
pub(super) type Held = Box<(Request, Permit)>;

/// Why a command did not run.
pub(super) struct Failure {
    /// The operation's error.
    pub(super) text: String,
    /// Exit status as a shell would give it, if the command was tried.
    pub(super) code: Option<i32>,
}
