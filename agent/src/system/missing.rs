//! Messages for what is missing or unusable in the machine: the cause, then advice.

use std::fmt;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A kernel file system is not mounted. Everything that it would show has the same cause.
    Unmounted(&'static str),
    /// Another program uses it. No event reports the end of that, so each check retries.
    Taken(String),
    /// Another cause. Callers log the message again when it changes.
    Other(String),
}

impl Missing {
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
