//! SFTP sessions with a guest, and the names of paths on both sides.

use std::io::stdout;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::sftp::client::{self, Client};
use super::sftp::wire::NO_SUCH_FILE;
use crate::agent::upgrade::{upgrade, upgrade_within};
use crate::common::printable;
use crate::daemon::known;
use crate::instance::Instance;
use crate::net::stream::{Limit, Timed};

pub type Session = Client<Timed>;

/// Limit for a query after a command failed.
const PATH_LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a guest may make no progress. A file system that hangs recovers sooner.
pub const SILENCE: Duration = Duration::from_secs(120);

/// Names a path in the guest, so that it is not mistaken for a local one.
pub fn guest(path: &Path) -> String {
    format!("in the guest, {}", printable::name(path))
}

pub fn local(path: &Path) -> String {
    printable::name(path)
}

/// Returns stdout without std's line buffer.
pub fn unbuffered_stdout() -> Result<std::fs::File> {
    Ok(std::os::fd::AsFd::as_fd(&stdout()).try_clone_to_owned()?.into())
}

/// Opens a session. An unreachable agent is an error.
pub fn start(root: &Path, name: &str) -> Result<Session> {
    let instance = known::reach(root, name)?;
    open(root, &instance, SILENCE)
}

/// Opens a session within `limit` with an agent that is known to be reachable.
pub fn open_within(root: &Path, instance: &Instance, limit: Limit) -> Result<Session> {
    let request = ("GET", "/1.0/sftp");
    let stream = upgrade_within(root, instance, request, "sftp", b"", limit)?;
    Client::start(Timed::new(stream, Limit::Each(SILENCE)))
}

/// Opens a session in which each answer must make progress within `silence`.
fn open(root: &Path, instance: &Instance, silence: Duration) -> Result<Session> {
    let stream = upgrade(root, instance, ("GET", "/1.0/sftp"), "sftp", b"")?;
    Client::start(Timed::new(stream, Limit::Each(silence)))
}

/// Returns whether a path is known not to be a directory. A path that cannot be read is not known.
pub fn is_no_directory(root: &Path, instance: &Instance, path: &Path) -> bool {
    let look = || -> Result<bool> {
        match open(root, instance, PATH_LOOK_TIMEOUT)?.stat(path) {
            Ok(attrs) => Ok(!attrs.is_directory()),
            Err(error) => Ok(client::code(&error) == Some(NO_SUCH_FILE)),
        }
    };
    look().unwrap_or(false)
}
