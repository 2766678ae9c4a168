//! The servers that mote-host can play, and their differences.

use serde::{Deserialize, Serialize};

/// The server to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Flavour {
    /// Incus, all versions
    #[serde(rename = "incus")]
    Incus,
    /// LXD 5.20 and later, 5.21 LTS among them
    #[serde(rename = "lxd")]
    Lxd,
    /// LXD up to 5.19, 5.0 LTS among them
    #[serde(rename = "lxd-5.0")]
    #[value(name = "lxd-5.0")]
    LxdOld,
}

impl Flavour {
    /// Returns the configuration key that switches devlxd.
    pub fn gate(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "security.devlxd",
            Self::Incus => "security.guestapi",
        }
    }

    /// Returns the key that permits guests to export images.
    pub fn images_gate(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "security.devlxd.images",
            Self::Incus => "security.guestapi.images",
        }
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incus => "incus",
            Self::Lxd => "lxd",
            Self::LxdOld => "lxd-5.0",
        }
    }

    /// Returns the name of the VM's status port (P§2.1).
    pub fn port_name(self) -> &'static str {
        match self {
            Self::Incus => "org.linuxcontainers.incus",
            Self::Lxd => "com.canonical.lxd",
            Self::LxdOld => "org.linuxcontainers.lxd",
        }
    }

    /// Returns the name of the VM's board for QEMU (`DQ:Start`).
    pub fn board(self) -> &'static str {
        match self {
            Self::Incus => "manufacturer=LinuxContainers,product=Incus",
            Self::Lxd | Self::LxdOld => "manufacturer=Canonical Ltd.,product=LXD",
        }
    }

    /// Returns the agent's name (P§3.4).
    pub fn agent(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "lxd-agent",
            Self::Incus => "incus-agent",
        }
    }

    /// Returns whether every call begins with `GET /1.0`, which Incus omits for most (P§3.2).
    pub fn greets(self) -> bool {
        match self {
            Self::Lxd | Self::LxdOld => true,
            Self::Incus => false,
        }
    }

    /// Returns the server's message for a missing agent.
    pub fn absent(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "LXD VM agent is not currently running",
            Self::Incus => "VM agent isn't currently running",
        }
    }

    /// Returns the key of the devlxd switch in `PUT /1.0` (P§3.3).
    pub fn flag(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "devlxd",
            Self::Incus => "dev_incus",
        }
    }
}
