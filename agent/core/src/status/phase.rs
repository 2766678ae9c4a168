//! The four states and the data of each.

use core::time::Duration;

use crate::named::named;

named! {
    /// The state, by its name in status lines, the log and the status file.
    pub enum State {
        Started "STARTED",
        /// The host has given its address and is being verified.
        Connect "CONNECT",
        Connected "CONNECTED",
        Stopped "STOPPED",
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Started {
        /// Pause after the agent's next verification of its own, if it fails.
        pause: Duration,
    },
    Connect,
    Connected {
        /// Remaining announcements at the short interval: see
        /// [`EAGER_ANNOUNCEMENTS`](super::pace::EAGER_ANNOUNCEMENTS).
        eager: u8,
        /// CONNECTED is still to be written.
        owed: bool,
    },
    Stopped {
        /// STOPPED is still to be written.
        owed: bool,
    },
}

impl Phase {
    pub(super) fn state(self) -> State {
        match self {
            Self::Started { .. } => State::Started,
            Self::Connect => State::Connect,
            Self::Connected { .. } => State::Connected,
            Self::Stopped { .. } => State::Stopped,
        }
    }

    /// Returns whether the state's own line is still to be written: CONNECTED or STOPPED.
    pub(super) fn owes_line(self) -> bool {
        match self {
            Self::Connected { owed, .. } | Self::Stopped { owed } => owed,
            Self::Started { .. } | Self::Connect => false,
        }
    }
}
