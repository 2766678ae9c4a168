//! An instance: what it is, on disk. One JSON file each, replaced whole, so that a daemon killed at
//! any moment leaves it readable.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::certs::Pair;

/// Which server is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Flavour {
    /// LXD 5.20 and later.
    #[serde(rename = "lxd")]
    Lxd,
    /// LXD 5.0.
    #[serde(rename = "lxd-5.0")]
    LxdOld,
    /// Incus.
    #[serde(rename = "incus")]
    Incus,
}

impl Flavour {
    /// The configuration key that switches devlxd.
    pub(crate) fn gate(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "security.devlxd",
            Self::Incus => "security.guestapi",
        }
    }

    /// Its name in `PUT /1.0` (P§3.3).
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Lxd | Self::LxdOld => "devlxd",
            Self::Incus => "dev_incus",
        }
    }
}

/// How the VM's vsock is reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Vsock {
    /// vhost-device-vsock's socket.
    Uds(PathBuf),
    /// Plain unix sockets: an agent that runs without a VM.
    Plain(PathBuf),
    /// AF_VSOCK, where the host's kernel has it: the guest's context id.
    Cid(u32),
}

impl Vsock {
    /// Where the guest comes in, if that is a unix socket.
    pub(crate) fn listener(&self, port: u32) -> Option<PathBuf> {
        match self {
            Self::Uds(path) | Self::Plain(path) => {
                let mut path = path.clone().into_os_string();
                path.push(format!("_{port}"));
                Some(path.into())
            }
            Self::Cid(_) => None,
        }
    }
}

/// How the agent's status is heard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Channel {
    /// QEMU's ring buffer, by way of QMP.
    Qmp(PathBuf),
    /// A socket or tty that carries the port both ways.
    Serial {
        /// Where.
        path: PathBuf,
        /// Whether to give back every byte, as shared memory would.
        shared: bool,
    },
}

/// One instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Instance {
    /// Its name.
    pub(crate) name: String,
    /// The server it believes in.
    pub(crate) flavour: Flavour,
    /// Its vsock.
    pub(crate) vsock: Vsock,
    /// Its status channel.
    pub(crate) channel: Channel,
    /// Configuration, `volatile.*` included.
    pub(crate) config: BTreeMap<String, String>,
    /// Devices.
    pub(crate) devices: BTreeMap<String, BTreeMap<String, String>>,
    /// Storage volumes and snapshots by their API path.
    #[serde(default)]
    pub(crate) volumes: BTreeMap<String, Value>,
}

/// `volatile.last_state.ready` (P§6).
pub(crate) const READY: &str = "volatile.last_state.ready";

impl Instance {
    /// Its directory below the daemon's.
    pub(crate) fn directory(root: &Path, name: &str) -> PathBuf {
        root.join("instances").join(name)
    }

    /// Reads one.
    pub(crate) fn load(root: &Path, name: &str) -> Result<Self> {
        let path = Self::directory(root, name).join("instance.json");
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    /// Reads all.
    pub(crate) fn load_all(root: &Path) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        if let Ok(entries) = fs::read_dir(root.join("instances")) {
            for entry in entries.flatten() {
                all.push(Self::load(root, &entry.file_name().to_string_lossy())?);
            }
        }
        Ok(all)
    }

    /// Writes it, whole or not at all.
    pub(crate) fn save(&self, root: &Path) -> Result<()> {
        let path = Self::directory(root, &self.name).join("instance.json");
        let beside = path.with_extension("new");
        let mut file = fs::File::create(&beside)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        Ok(fs::rename(beside, path)?)
    }

    /// Makes a new one: certificates, and what the guest gets to see of them (P§1.2).
    pub(crate) fn create(&self, root: &Path, agent: Option<&Path>) -> Result<PathBuf> {
        let usable = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        if self.name.is_empty() || !self.name.chars().all(usable) {
            bail!("an instance's name has letters, digits and dashes");
        }
        let directory = Self::directory(root, &self.name);
        let share = directory.join("config");
        fs::create_dir_all(share.join("files"))?;
        Pair::load_or_make(&share, "agent")?;
        let client = Pair::load_or_make(&directory, "agent-client")?;
        fs::write(share.join("server.crt"), &client.pem)?;
        fs::write(share.join("files/metadata.yaml"), "templates: {}\n")?;
        if let Some(agent) = agent {
            let name = agent.file_name().context("--agent needs a file")?;
            fs::copy(agent, share.join(name))?;
        }
        if matches!(self.channel, Channel::Serial { .. }) {
            // Nobody will PUT: what is not in a CONNECT line comes from here.
            let daemon = Pair::load_or_make(root, "server")?;
            self.write_conf(root, 1024, &daemon.pem)?;
        }
        self.save(root)?;
        Ok(share)
    }

    /// What `PUT /1.0` and agent.conf say (P§3.3).
    pub(crate) fn told(&self, port: u32, certificate: &str) -> Value {
        let mut told = json!({ "cid": 2, "port": port, "certificate": certificate });
        if self.allows_guests() {
            told[self.flavour.flag()] = json!(true);
        }
        told
    }

    /// Writes agent.conf into the share.
    pub(crate) fn write_conf(&self, root: &Path, port: u32, certificate: &str) -> Result<()> {
        let path = Self::directory(root, &self.name).join("config/agent.conf");
        Ok(fs::write(path, format!("{}\n", self.told(port, certificate)))?)
    }

    /// Whether guests may use devlxd.
    pub(crate) fn allows_guests(&self) -> bool {
        self.config.get(self.flavour.gate()).is_none_or(|value| value != "false")
    }

    /// Whether the instance said Ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.config.get(READY).is_some_and(|value| value == "true")
    }
}
