//! Why the agent has no lock.

use std::fmt;
use std::io::ErrorKind;

/// Why the lock is not this agent's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Another agent holds it: the message, with what is known of that agent.
    Another(String),
    /// The directory or file cannot be created or locked, or is not trustworthy: the kind, the
    /// message, and what to do.
    Refused(ErrorKind, String),
}

impl fmt::Display for LockError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Another(why) | Self::Refused(_, why)) = self;
        out.write_str(why)
    }
}
