//! The host's files kept by the guest (`--remember`), for a start without the share: it may be gone for good, as with
//! `migration.stateful`, which takes virtiofs away. Only root can read them.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use mote_core::time::Uptime;

use crate::config::contents::ConfigFiles;
use crate::config::known_host::{ADDRESS, keep_in};
use crate::options::Options;
use crate::runtime::clock::now;
use crate::runtime::log::frozen;
use crate::runtime::small_files::write_lasting;

/// How long the share is waited for: at boot its device may be late.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps what was read. Not on a frozen disk, for which the start would have to wait: the next one does it.
pub(super) fn keep(directory: &Path, files: &ConfigFiles) {
    if frozen::is_frozen() {
        return;
    }
    // By the umask for root alone.
    let _there = fs::create_dir(directory);
    let (crt, key, server) = (&files.agent_crt, &files.agent_key, &files.server_crt);
    for (name, bytes) in [("agent.crt", crt), ("agent.key", key), ("server.crt", server)] {
        keep_in(directory, name, bytes, write_lasting);
    }
    if let Some(address) = &files.agent_conf {
        keep_in(directory, ADDRESS, address, write_lasting);
    }
}

/// Whether the share has been waited for long enough to do with what was kept.
pub(crate) fn is_time(options: &Options) -> bool {
    static FIRST: OnceLock<Uptime> = OnceLock::new();
    let first = *FIRST.get_or_init(now);
    !options.waits() || now() - first >= PATIENCE
}
