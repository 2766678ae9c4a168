//! What the agent does not find in the machine, or cannot use: the words for people, the cause first, then what to do.

use std::fmt;

/// Why something is missing or of no use: a module, a driver, the status port, the host's files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A file system of the kernel's is not mounted: the reason is the same for all that would be found by it.
    Unmounted(&'static str),
    /// Another program has it, of whose end no device tells: it is tried again at each look.
    Taken(String),
    /// Another cause. Nobody tells these from each other: whoever waits says it again when the words change.
    Other(String),
}

impl Missing {
    /// The reason in words.
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
