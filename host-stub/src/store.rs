//! Instances on disk: one JSON file each, replaced whole, so that a daemon killed at any moment
//! leaves it readable. The same for everything else that is written.
//!
//! ```text
//! DIR/server.{crt,key}  port  lock  control.sock
//! DIR/instances/NAME/instance.json  agent-client.{crt,key}
//!                   /config/  the share: agent.{crt,key} server.crt agent.conf files/metadata.yaml
//!                             agent-mounts.json nics/
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::certs::Pair;
use crate::instance::{Channel, Instance};
use crate::share::{self, Template};

/// Written to agent.conf if no daemon ever ran here; nobody listens there.
const NO_PORT: u32 = 1024;

/// An instance's directory below the daemon's.
pub(crate) fn directory(root: &Path, name: &str) -> PathBuf {
    root.join("instances").join(name)
}

/// The share that its guest sees.
pub(crate) fn share(root: &Path, name: &str) -> PathBuf {
    directory(root, name).join("config")
}

/// Reads one.
pub(crate) fn load(root: &Path, name: &str) -> Result<Instance> {
    let path = directory(root, name).join("instance.json");
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Reads all. A directory without a file is an `init` that was killed: it never existed.
pub(crate) fn load_all(root: &Path) -> Result<Vec<Instance>> {
    let Ok(entries) = fs::read_dir(root.join("instances")) else { return Ok(Vec::new()) };
    entries
        .flatten()
        .filter(|entry| entry.path().join("instance.json").exists())
        .map(|entry| load(root, &entry.file_name().to_string_lossy()))
        .collect()
}

/// Writes one.
pub(crate) fn save(root: &Path, instance: &Instance) -> Result<()> {
    let path = directory(root, &instance.name).join("instance.json");
    write_whole(&path, &serde_json::to_vec_pretty(instance)?, 0o644)
}

/// Replaces a file: after a crash there is the old or the new content, never a mixture.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        // The name is in the directory, and is on disk only with it.
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    write().with_context(|| path.display().to_string())
}

/// Makes a new one: certificates, and what the guest gets to see of them (P§1.2). Gives the share.
pub(crate) fn create(
    root: &Path,
    instance: &Instance,
    agent: Option<&Path>,
    templates: &[Template],
) -> Result<PathBuf> {
    let usable = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if instance.name.is_empty() || !instance.name.chars().all(usable) {
        bail!("an instance's name has letters, digits and dashes");
    }
    let directory = directory(root, &instance.name);
    if directory.join("instance.json").exists() {
        bail!("there is an instance {} already", instance.name);
    }
    let share = share(root, &instance.name);
    fs::create_dir_all(share.join("files"))?;
    Pair::load_or_make(&share, "agent")?;
    let client = Pair::load_or_make(&directory, "agent-client")?;
    write_whole(&share.join("server.crt"), client.pem.as_bytes(), 0o644)?;
    share::write_templates(root, &instance.name, templates)?;
    share::write_devices(root, instance)?;
    if let Some(agent) = agent {
        let name = agent.file_name().context("--agent needs a file")?;
        fs::copy(agent, share.join(name)).with_context(|| agent.display().to_string())?;
    }
    if matches!(instance.channel, Channel::Serial { .. }) {
        // Nobody will PUT: the certificate and whether there is devlxd come from here. The port may
        // be one that no longer counts; CONNECT tells the right one.
        let daemon = Pair::load_or_make(root, "server")?;
        write_conf(root, instance, last_port(root).unwrap_or(NO_PORT), &daemon.pem)?;
    }
    save(root, instance)?;
    fs::canonicalize(&share).with_context(|| share.display().to_string())
}

/// Writes agent.conf into the share (P§3.3).
pub(crate) fn write_conf(root: &Path, instance: &Instance, port: u32, pem: &str) -> Result<()> {
    let text = format!("{}\n", instance.told(port, pem));
    write_whole(&share(root, &instance.name).join("agent.conf"), text.as_bytes(), 0o644)
}

/// The port of the daemon that last ran here.
fn last_port(root: &Path) -> Option<u32> {
    fs::read_to_string(root.join("port")).ok()?.trim().parse().ok()
}

/// Remembers the port.
pub(crate) fn save_port(root: &Path, port: u32) -> Result<()> {
    write_whole(&root.join("port"), format!("{port}\n").as_bytes(), 0o644)
}

/// Makes this process the only daemon of a directory, for as long as the file is kept.
pub(crate) fn lock(root: &Path) -> Result<File> {
    fs::create_dir_all(root)?;
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).open(root.join("lock"))?;
    if file.try_lock().is_err() {
        bail!("another daemon runs in {}", root.display());
    }
    Ok(file)
}
