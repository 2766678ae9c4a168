//! Why something in the machine is missing or unusable, as messages: the cause first, then what to
//! do.

use std::fmt;

/// Why a module, a driver, the status port or the host's files are missing or unusable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A kernel file system is not mounted: the same reason for everything that it would show.
    Unmounted(&'static str),
    /// Another program uses it. No event reports the end of that, so it is tried again at each
    /// check.
    Taken(String),
    /// Another cause. Callers do not distinguish these; they log the message again when it changes.
    Other(String),
}

impl Missing {
    /// Returns the message.
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Unmounted(why) => why,
            Self::Taken(why) | Self::Other(why) => why,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.why())
    }
}
