//! Stores the host's files in the guest (`--remember`), readable only by root, for a start without
//! the share: `migration.stateful` removes virtiofs permanently.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use mote_core::time::Uptime;

use crate::config::contents::ConfigFiles;
use crate::config::known_host::{ADDRESS, keep_in};
use crate::options::Options;
use crate::runtime::{log::frozen, now, write_lasting};
use crate::sys::file;

/// How long to wait for the share, whose device may be late at boot.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Stores the files. Skips a frozen disk, which would block the start; the next start stores them.
pub(super) fn keep(directory: &Path, files: &ConfigFiles) {
    if frozen::is_frozen() {
        return;
    }
    // The umask makes them accessible to root only.
    let _there = file::mkdir(directory);
    let (crt, key, server) = (&files.agent_crt, &files.agent_key, &files.server_crt);
    for (name, bytes) in [("agent.crt", crt), ("agent.key", key), ("server.crt", server)] {
        keep_in(directory, name, bytes, write_lasting);
    }
    if let Some(address) = &files.agent_conf {
        keep_in(directory, ADDRESS, address, write_lasting);
    }
}

/// Returns whether the wait for the share has ended.
pub(crate) fn is_time(options: &Options) -> bool {
    static FIRST: OnceLock<Uptime> = OnceLock::new();
    let first = *FIRST.get_or_init(now);
    !options.waits() || now() - first >= TIMEOUT
}
