//! Instances on disk: one JSON file each, replaced atomically, so a daemon killed at any moment
//! leaves it readable. All other files are replaced in the same way.
//!
//! ```text
//! DIR/server.{crt,key}  port  lock  control.sock
//! DIR/instances/NAME/instance.json  agent-client.{crt,key}
//!                   /config/  the share: agent.{crt,key} server.crt agent.conf files/metadata.yaml
//!                             agent-mounts.json nics/
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::{Channel, Flavour, Instance, share};
use crate::common::whole_file::write_whole;
use crate::net::tls::Pair;

pub fn directory(root: &Path, name: &str) -> PathBuf {
    root.join("instances").join(name)
}

/// Creates a directory, with missing parents, that only this user may enter: instances contain
/// keys, credentials and user-data. A directory of another user, or one that others can write to,
/// is an error.
pub fn make_private(directory: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let about = fs::metadata(directory)?;
    if about.uid() != geteuid().as_raw() || about.mode() & 0o002 != 0 {
        let who = about.uid();
        bail!(
            "it belongs to user {who}, or others can write to it and create links there; use another directory"
        );
    }
    Ok(())
}

pub fn share(root: &Path, name: &str) -> PathBuf {
    directory(root, name).join("config")
}

pub fn load(root: &Path, name: &str) -> Result<Instance> {
    let path = directory(root, name).join("instance.json");
    if !exists(root, name) {
        bail!("no instance is named {name} in {}", root.display());
    }
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

pub fn exists(root: &Path, name: &str) -> bool {
    is_name(name) && directory(root, name).join("instance.json").exists()
}

pub fn is_name(text: &str) -> bool {
    let is_usable = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    !text.is_empty() && text.chars().all(is_usable)
}

/// Returns the names of all instances. Ignores a directory without instance.json, which an
/// interrupted `init` has left.
pub fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("instances")).into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = all.filter(|name| exists(root, name)).collect();
    names.sort();
    names
}

pub fn save(root: &Path, instance: &Instance) -> Result<()> {
    let path = directory(root, &instance.name).join("instance.json");
    let text = serde_json::to_vec_pretty(instance)?;
    write_whole(&path, &text, 0o600)
}

/// Removes an instance. Removes instance.json first, so that the rest is ignored after a crash.
pub fn remove(root: &Path, name: &str) -> Result<()> {
    let directory = directory(root, name);
    let file = directory.join("instance.json");
    fs::remove_file(&file).with_context(|| file.display().to_string())?;
    fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())
}

/// Writes agent.conf into the share (P§3.3). A micro VM gets the address only by PUT.
pub fn write_conf(root: &Path, instance: &Instance, port: u32, pem: &str) -> Result<()> {
    if instance.flavour == Flavour::LxdMicro {
        return Ok(());
    }
    let text = format!("{}\n", instance.host_info(port, pem));
    write_whole(&share(root, &instance.name).join("agent.conf"), text.as_bytes(), 0o644)
}

/// Beginning of the error if another process is the daemon.
pub const IS_LOCKED: &str = "another daemon runs in";

/// Makes this process the only daemon of a directory until the file is closed.
pub fn lock(root: &Path) -> Result<File> {
    make_private(root).with_context(|| root.display().to_string())?;
    let file = open_lock(root, OpenOptions::new().write(true).create(true).mode(0o600))?;
    if file.try_lock().is_err() {
        bail!("{IS_LOCKED} {}", root.display());
    }
    Ok(file)
}

/// Opens the lock of a directory without waiting. Anything but a regular file is an error.
pub fn open_lock(root: &Path, options: &mut OpenOptions) -> Result<File> {
    let path = root.join("lock");
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(i32::try_from(flags.bits())?).open(&path);
    let file = file.with_context(|| path.display().to_string())?;
    if !file.metadata()?.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    Ok(file)
}

/// The file with the daemon's last port.
pub const PORT: &str = "port";
/// Written to agent.conf before the first start of a daemon; no process listens there.
const NO_PORT: u32 = 1024;

/// Creates an instance with its certificates and config share (P§1.2), and returns the share.
pub fn create(root: &Path, instance: &Instance) -> Result<PathBuf> {
    if !is_name(&instance.name) {
        bail!("an instance's name consists of letters, digits and dashes");
    }
    let directory = directory(root, &instance.name);
    if exists(root, &instance.name) {
        bail!("instance {} already exists", instance.name);
    }
    let share = share(root, &instance.name);
    for directory in [root, &directory] {
        make_private(directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(share.join("files"))?;
    Pair::load_or_make(&share, "agent")?;
    let client = Pair::load_or_make(&directory, "agent-client")?;
    write_whole(&share.join("server.crt"), client.pem.as_bytes(), 0o644)?;
    write_whole(&share.join("files/metadata.yaml"), b"templates: {}\n", 0o644)?;
    share::write_devices(root, instance)?;
    if matches!(instance.channel, Channel::Serial { .. }) {
        // The agent reads the certificate and the devlxd switch from here before a PUT. The port
        // may be outdated; CONNECT reports the current one.
        let daemon = Pair::load_or_make(root, "server")?;
        let port = fs::read_to_string(root.join(PORT)).ok().and_then(|it| it.trim().parse().ok());
        write_conf(root, instance, port.unwrap_or(NO_PORT), &daemon.pem)?;
    }
    save(root, instance)?;
    fs::canonicalize(&share).with_context(|| share.display().to_string())
}
