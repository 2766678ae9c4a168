//! Why the agent could not take its lock.

use std::fmt;
use std::io::ErrorKind;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Another agent holds it: the message.
    Another(String),
    /// The directory or file cannot be created or locked, or is not trustworthy: the kind, and the
    /// message with advice.
    Refused(ErrorKind, String),
}

impl fmt::Display for LockError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Another(why) | Self::Refused(_, why)) = self;
        out.write_str(why)
    }
}
