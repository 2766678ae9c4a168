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

/// The names that a server uses, and its habits.
#[derive(Debug)]
pub struct Server {
    /// On the command line.
    pub name: &'static str,
    /// Configuration key that switches devlxd.
    pub gate: &'static str,
    /// Configuration key that permits guests to export images.
    pub images_gate: &'static str,
    /// Key of the devlxd switch in `PUT /1.0` (P§3.3).
    pub flag: &'static str,
    /// Name of the VM's status port (P§2.1).
    pub port: &'static str,
    /// Name of the VM's board for QEMU (`DQ:Start`).
    pub board: &'static str,
    /// The agent's name (P§3.4).
    pub agent: &'static str,
    /// Whether every call begins with `GET /1.0`, which Incus omits for most (P§3.2).
    pub greets: bool,
    /// Message for a missing agent.
    pub absent: &'static str,
}

const LXD: Server = Server {
    name: "lxd",
    gate: "security.devlxd",
    images_gate: "security.devlxd.images",
    flag: "devlxd",
    port: "com.canonical.lxd",
    board: "manufacturer=Canonical Ltd.,product=LXD",
    agent: "lxd-agent",
    greets: true,
    absent: "LXD VM agent is not currently running",
};

impl Flavour {
    pub fn server(self) -> &'static Server {
        const OLD: Server = Server { name: "lxd-5.0", port: "org.linuxcontainers.lxd", ..LXD };
        match self {
            Self::Lxd => &LXD,
            Self::LxdOld => &OLD,
            Self::Incus => &Server {
                name: "incus",
                gate: "security.guestapi",
                images_gate: "security.guestapi.images",
                flag: "dev_incus",
                port: "org.linuxcontainers.incus",
                board: "manufacturer=LinuxContainers,product=Incus",
                agent: "incus-agent",
                greets: false,
                absent: "VM agent isn't currently running",
            },
        }
    }
}
