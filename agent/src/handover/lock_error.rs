//! Why the agent's lock is not taken.

use std::fmt;
use std::io::ErrorKind;

/// Why the lock is not this agent's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Another agent has it: the words for that, with as much of it as is known.
    Another(String),
    /// Directory or file cannot be made or locked, or is not to be trusted: the kind, the words, and what to do.
    Refused(ErrorKind, String),
}

impl fmt::Display for LockError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Another(why) | Self::Refused(_, why)) = self;
        out.write_str(why)
    }
}
