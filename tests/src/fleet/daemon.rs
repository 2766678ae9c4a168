//! The daemon: where it listens, and how it is.

use mote_core::host_address::HostAddress;

/// The daemon's process.
#[derive(Debug)]
pub(super) struct Daemon {
    /// Number of the process: each start has a new one.
    pub(super) number: u32,
    pub(super) health: Health,
}

/// Health of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Not running.
    Away,
    /// Running, but calls to it fail.
    Failing,
    Well,
}

impl Default for Daemon {
    fn default() -> Self {
        Self { number: 1, health: Health::Well }
    }
}

impl Daemon {
    /// Where it listens: each has a port of its own (P§3.3).
    pub(super) fn address(&self) -> HostAddress {
        HostAddress { cid: 2, port: 4000 + self.number }
    }

    /// True if it is running.
    pub(super) fn is_up(&self) -> bool {
        self.health != Health::Away
    }

    /// The line with its address, for a bidirectional port.
    pub(super) fn line(&self) -> String {
        let HostAddress { cid, port } = self.address();
        format!("CONNECT {cid}:{port}\n")
    }
}
