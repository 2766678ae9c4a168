//! Creates an instance: its directory, certificates and config share.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::share;
use super::store::{
    directory, exists, is_usable, last_port, make_private, save, share, write_conf,
};
use super::{Channel, Instance};
use crate::common::whole_file::write_whole;
use crate::net::certs::Pair;

/// Written to agent.conf before the first start of a daemon; no process listens there.
const NO_PORT: u32 = 1024;

/// Creates an instance with its certificates and config share (P§1.2), and returns the share.
pub fn create(root: &Path, instance: &Instance, agent: Option<&Path>) -> Result<PathBuf> {
    if instance.name.is_empty() || !instance.name.chars().all(is_usable) {
        bail!("an instance's name has letters, digits and dashes");
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
    if let Some(agent) = agent {
        let name = agent.file_name().context("--agent needs a file")?;
        fs::copy(agent, share.join(name)).with_context(|| agent.display().to_string())?;
    }
    if matches!(instance.channel, Channel::Serial { .. }) {
        // The agent reads the certificate and the devlxd switch from here before a PUT. The port
        // may be outdated; CONNECT reports the current one.
        let daemon = Pair::load_or_make(root, "server")?;
        write_conf(root, instance, last_port(root).unwrap_or(NO_PORT), &daemon.pem)?;
    }
    save(root, instance)?;
    fs::canonicalize(&share).with_context(|| share.display().to_string())
}
