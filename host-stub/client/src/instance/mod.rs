//! Instances: the model and what follows from its configuration. No I/O; `store` has the files.

pub mod share;
pub mod store;
pub mod vsock_device;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::random;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vsock {
    /// AF_VSOCK of the host's kernel, with the guest's context id.
    Cid(u32),
    /// Unix sockets of an agent that runs without a VM.
    Plain(PathBuf),
    /// The socket of vhost-device-vsock.
    Uds(PathBuf),
}

impl Vsock {
    /// Returns the unix socket for the guest's calls to `port`; `None` if they arrive on AF_VSOCK.
    pub fn host_socket(&self, port: u32) -> Option<PathBuf> {
        match self {
            Self::Plain(path) | Self::Uds(path) => {
                let mut path = path.as_os_str().to_owned();
                path.push(format!("_{port}"));
                Some(path.into())
            }
            Self::Cid(_) => None,
        }
    }
}

/// How to read the agent's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// QEMU's ring buffer, over QMP.
    Qmp(PathBuf),
    /// A socket or tty with both directions of the port.
    Serial {
        path: PathBuf,
        /// Whether to return every byte to the agent, as shared memory would.
        shared: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    pub name: String,
    pub flavour: Flavour,
    pub vsock: Vsock,
    pub channel: Channel,
    /// Configuration, `volatile.*` included.
    pub config: BTreeMap<String, String>,
    pub devices: BTreeMap<String, BTreeMap<String, String>>,
}

/// Whether an application reported Ready (P§6).
pub const READY: &str = "volatile.last_state.ready";
/// Whether the VM runs, as far as the host knows.
pub const POWER: &str = "volatile.last_state.power";
/// Incus' record of the agent (P§6).
pub const AGENT: &str = "volatile.last_state.agent";
/// The instance's UUID, created with it.
pub const UUID: &str = "volatile.uuid";
/// The generation of its memory and disks: the UUID, until they are restored from a snapshot.
pub const GENERATION: &str = "volatile.uuid.generation";
/// The guest's context id.
pub const VSOCK_ID: &str = "volatile.vsock_id";

/// QEMU's name for the config disk, also in its statistics of how much the guest has read.
pub const CONFIG_DISK: &str = "config";

/// Returns the configuration with which each instance begins: its UUID and generation.
pub fn identity() -> BTreeMap<String, String> {
    let id = random::uuid();
    [UUID, GENERATION].map(|key| (key.to_owned(), id.clone())).into()
}

impl Instance {
    /// Returns an instance without a VM, for the unit tests of these crates.
    pub fn sample(flavour: Flavour, config: &[(&str, &str)]) -> Self {
        let pairs = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self {
            name: "vm1".into(),
            flavour,
            vsock: Vsock::Plain("/tmp/p".into()),
            channel: Channel::Qmp("/nowhere".into()),
            config: pairs.collect(),
            devices: BTreeMap::new(),
        }
    }

    /// Returns the content of `PUT /1.0` and agent.conf (P§3.3).
    pub fn host_info(&self, port: u32, certificate: &str) -> Value {
        let port = self.host_port(port);
        let mut told = json!({ "cid": 2, "port": port, "certificate": certificate });
        if self.allows_guests() {
            told[self.flavour.server().flag] = json!(true);
        }
        told
    }

    /// Returns the port on which the host listens for this guest, given the daemon's.
    pub fn host_port(&self, port: u32) -> u32 {
        if self.flavour == Flavour::LxdMicro { MICRO_PORT } else { port }
    }

    /// Returns whether guests may use devlxd, which is the default.
    pub fn allows_guests(&self) -> bool {
        !self.is_false(self.flavour.server().gate)
    }

    /// Returns the value of a boolean key; `None` if it is not set or not boolean.
    fn switch(&self, key: &str) -> Option<bool> {
        match self.config.get(key)?.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    pub fn is_false(&self, key: &str) -> bool {
        self.switch(key) == Some(false)
    }

    pub fn is_true(&self, key: &str) -> bool {
        self.switch(key) == Some(true)
    }

    /// Returns SMBIOS' strings of type 11, which only Incus has: its own keys, and credentials for
    /// systemd.
    pub fn smbios11(&self) -> Vec<String> {
        const KEYS: [(&str, &str); 3] = [
            ("smbios11.", ""),
            ("systemd.credential-binary.", "io.systemd.credential.binary:"),
            ("systemd.credential.", "io.systemd.credential:"),
        ];
        let is_incus = self.flavour == Flavour::Incus;
        let strings = |(key, value): (&String, &String)| {
            let shown = |(begin, shown): &(&str, &str)| {
                Some(format!("{shown}{}={value}", key.strip_prefix(begin)?))
            };
            KEYS.iter().find_map(shown)
        };
        self.config.iter().filter(|_| is_incus).filter_map(strings).collect()
    }

    pub fn is_ready(&self) -> bool {
        self.is_true(READY)
    }

    pub fn is_running(&self) -> bool {
        self.config.get(POWER).is_some_and(|power| power == "RUNNING")
    }

    pub fn shown_devices(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut devices = self.devices.clone();
        for (name, device) in &mut devices {
            let is_nic = device.get("type").is_some_and(|kind| kind == "nic");
            let hwaddr = self.config.get(&format!("volatile.{name}.hwaddr"));
            if let (true, false, Some(hwaddr)) = (is_nic, device.contains_key("hwaddr"), hwaddr) {
                device.insert("hwaddr".into(), hwaddr.clone());
            }
        }
        devices
    }
}

/// The server to emulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Flavour {
    /// Incus, all versions
    #[serde(rename = "incus")]
    Incus,
    /// LXD 5.20 and later, 5.21 LTS among them
    #[serde(rename = "lxd")]
    Lxd,
    /// LXD's micro VMs: their status port is not read, and `poweroff` stops them
    #[serde(rename = "lxd-micro")]
    LxdMicro,
    /// LXD up to 5.19, 5.0 LTS among them
    #[serde(rename = "lxd-5.0")]
    #[value(name = "lxd-5.0")]
    LxdOld,
}

/// LXD's port for its micro VMs, which is the same after a restart.
const MICRO_PORT: u32 = 8444;

/// The names that a server uses, and how it behaves.
#[derive(Debug)]
pub struct Server {
    /// Configuration key that switches devlxd.
    pub gate: &'static str,
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
    gate: "security.devlxd",
    flag: "devlxd",
    port: "com.canonical.lxd",
    board: "manufacturer=Canonical Ltd.,product=LXD",
    agent: "lxd-agent",
    greets: true,
    absent: "LXD VM agent is not currently running",
};

impl Flavour {
    pub fn is_lxd(self) -> bool {
        matches!(self, Self::Lxd | Self::LxdMicro)
    }

    pub fn server(self) -> &'static Server {
        const OLD: Server = Server { port: "org.linuxcontainers.lxd", ..LXD };
        match self {
            Self::Lxd | Self::LxdMicro => &LXD,
            Self::LxdOld => &OLD,
            Self::Incus => &Server {
                gate: "security.guestapi",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_shows_the_address_that_the_host_chose() {
        let mut instance =
            Instance::sample(Flavour::Lxd, &[("volatile.eth0.hwaddr", "00:16:3e:00:00:01")]);
        for (name, kind) in [("eth0", "nic"), ("disk", "disk")] {
            instance.devices.insert(name.into(), [("type".into(), kind.into())].into());
        }
        let shown = instance.shown_devices();
        assert_eq!(shown["eth0"]["hwaddr"], "00:16:3e:00:00:01");
        assert!(!shown["disk"].contains_key("hwaddr"));
    }
}
