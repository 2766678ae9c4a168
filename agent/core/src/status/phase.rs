//! The four states and the data of each.

use core::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The agent announces itself.
    Started,
    /// The host has given its address and is being verified.
    Connect,
    Connected,
    Stopped,
}

impl State {
    /// Returns the name in status lines, the log and the status file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "STARTED",
            Self::Connect => "CONNECT",
            Self::Connected => "CONNECTED",
            Self::Stopped => "STOPPED",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Started {
        /// Pause after the next own verification that fails.
        pause: Duration,
    },
    Connect,
    Connected {
        /// Announcements left at the short interval: see
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
    /// Returns the state without its data.
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
