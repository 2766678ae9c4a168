//! Why the agent does not start, or ends with an error.

use std::fmt;

use crate::handover::lock_error::LockError;
use crate::sys::SystemError;
use crate::system::missing::Missing;

#[derive(Debug)]
pub(crate) enum StartError {
    /// The lock is another agent's, or cannot be taken.
    Lock(LockError),
    /// Something is missing, and the agent must not wait for it.
    Missing(Missing),
    /// A system call that never fails otherwise.
    System(SystemError),
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(why) => why.fmt(out),
            Self::Missing(why) => why.fmt(out),
            Self::System(why) => why.fmt(out),
        }
    }
}

impl From<LockError> for StartError {
    fn from(why: LockError) -> Self {
        Self::Lock(why)
    }
}

impl From<Missing> for StartError {
    fn from(why: Missing) -> Self {
        Self::Missing(why)
    }
}

impl From<SystemError> for StartError {
    fn from(why: SystemError) -> Self {
        Self::System(why)
    }
}
