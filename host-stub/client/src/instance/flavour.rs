//! The servers that can be played, and the words in which they differ.

use serde::{Deserialize, Serialize};

/// Which server is played.
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
    /// The configuration key that switches devlxd.
    pub fn gate(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "security.devlxd",
            Self::Incus => "security.guestapi",
        }
    }

    /// The key that lets guests have images.
    pub fn images_gate(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "security.devlxd.images",
            Self::Incus => "security.guestapi.images",
        }
    }

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incus => "incus",
            Self::Lxd => "lxd",
            Self::LxdOld => "lxd-5.0",
        }
    }

    /// The name of its VMs' status port (P§2.1).
    pub fn port_name(self) -> &'static str {
        match self {
            Self::Incus => "org.linuxcontainers.incus",
            Self::Lxd => "com.canonical.lxd",
            Self::LxdOld => "org.linuxcontainers.lxd",
        }
    }

    /// How it calls its VMs' board, for QEMU (`DQ:Start`).
    pub fn board(self) -> &'static str {
        match self {
            Self::Incus => "manufacturer=LinuxContainers,product=Incus",
            Self::Lxd | Self::LxdOld => "manufacturer=Canonical Ltd.,product=LXD",
        }
    }

    /// What the agent has to call itself (P§3.4).
    pub fn agent(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "lxd-agent",
            Self::Incus => "incus-agent",
        }
    }

    /// Whether every call begins with `GET /1.0`, where Incus leaves it out for most (P§3.2).
    pub fn greets(self) -> bool {
        match self {
            Self::Lxd | Self::LxdOld => true,
            Self::Incus => false,
        }
    }

    /// What users hear if there is no agent.
    pub fn absent(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "LXD VM agent is not currently running",
            Self::Incus => "VM agent isn't currently running",
        }
    }

    /// Its name in `PUT /1.0` (P§3.3).
    pub fn flag(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "devlxd",
            Self::Incus => "dev_incus",
        }
    }
}
