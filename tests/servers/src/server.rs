//! The servers, and where their command lines differ.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// Incus 7.0.2 of Debian 13's backports.
    Incus,
    /// Incus 6.0.4 of Debian 13.
    #[value(name = "incus-6.0")]
    Incus60,
    /// LXD 5.0.2 of Debian 12.
    Lxd,
}

impl Server {
    /// All, in the page's order.
    pub const ALL: [Self; 3] = [Self::Incus, Self::Incus60, Self::Lxd];

    /// Returns its name on the command line of `scripts/real-server` and in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incus => "incus",
            Self::Incus60 => "incus-6.0",
            Self::Lxd => "lxd",
        }
    }

    pub fn is_incus(self) -> bool {
        self != Self::Lxd
    }

    pub fn is_incus_7(self) -> bool {
        self == Self::Incus
    }

    fn either(self, incus: &'static str, lxd: &'static str) -> &'static str {
        if self.is_incus() { incus } else { lxd }
    }

    /// Returns the name of its service, which headers and metrics use too.
    pub fn service(self) -> &'static str {
        self.either("incus", "lxd")
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Incus => "Incus 7.0.2 (Debian 13, backports)",
            Self::Incus60 => "Incus 6.0.4 (Debian 13)",
            Self::Lxd => "LXD 5.0.2 (Debian 12)",
        }
    }

    pub fn own_agent(self) -> &'static str {
        self.either("incus-agent", "lxd-agent")
    }

    pub fn cli(self) -> &'static str {
        self.either("incus", "lxc")
    }

    pub fn socket(self) -> &'static str {
        self.either("/var/lib/incus/unix.socket", "/var/lib/lxd/unix.socket")
    }

    pub fn guest_socket(self) -> &'static str {
        self.either("/dev/incus/sock", "/dev/lxd/sock")
    }

    /// Returns the key that disables devlxd.
    pub fn guest_api(self) -> &'static str {
        self.either("security.guestapi", "security.devlxd")
    }

    /// Returns whether it has the status Ready: since LXD 5.5 (`instance_ready_state`).
    pub fn has_ready(self) -> bool {
        self.is_incus()
    }

    pub fn resume(self) -> &'static str {
        self.either("resume", "start")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    Mote,
    /// The server's own, from its config share.
    Own,
}

impl Agent {
    /// Both, in the table's order.
    pub const ALL: [Self; 2] = [Self::Mote, Self::Own];

    /// Returns its name on the command line, which is also the name of its image.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mote => "mote",
            Self::Own => "own",
        }
    }

    pub fn title(self, server: Server) -> &'static str {
        match self {
            Self::Mote => "mote",
            Self::Own => server.own_agent(),
        }
    }
}
