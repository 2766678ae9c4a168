//! An SFTP session with a guest, and how paths on its two sides are called.

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

/// A session with an agent.
pub type Session = Client<Timed>;

/// For a look at a directory after a command failed.
const PATH_LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// A guest that neither says nor takes anything for so long is given up; a file system that hangs comes back in less.
pub const SILENCE: Duration = Duration::from_secs(120);

/// A path in the guest, for people who may take it for one of theirs.
pub fn guest(path: &Path) -> String {
    format!("in the guest, {}", printable::name(path))
}

/// A path here.
pub fn local(path: &Path) -> String {
    printable::name(path)
}

/// stdout, which std would buffer up to the next newline.
pub fn unbuffered_stdout() -> Result<std::fs::File> {
    Ok(std::os::fd::AsFd::as_fd(&stdout()).try_clone_to_owned()?.into())
}

/// Opens a session; an error if the agent cannot be called.
pub fn start(root: &Path, name: &str) -> Result<Session> {
    let instance = known::reach(root, name)?;
    open(root, &instance, SILENCE)
}

/// The same of an agent that is known to be there, open by then.
pub fn open_within(root: &Path, instance: &Instance, limit: Limit) -> Result<Session> {
    let request = ("GET", "/1.0/sftp");
    let stream = upgrade_within(root, instance, request, "sftp", b"", limit)?;
    Client::start(Timed::new(stream, Limit::Each(SILENCE)))
}

/// A session in which each answer has to come within that time.
fn open(root: &Path, instance: &Instance, silence: Duration) -> Result<Session> {
    let stream = upgrade(root, instance, ("GET", "/1.0/sftp"), "sftp", b"")?;
    Client::start(Timed::new(stream, Limit::Each(silence)))
}

/// Whether this is known to be no directory; what cannot be looked at is not known.
pub fn is_no_directory(root: &Path, instance: &Instance, path: &Path) -> bool {
    let look = || -> Result<bool> {
        match open(root, instance, PATH_LOOK_TIMEOUT)?.stat(path) {
            Ok(attrs) => Ok(!attrs.is_directory()),
            Err(error) => Ok(client::code(&error) == Some(NO_SUCH_FILE)),
        }
    };
    look().unwrap_or(false)
}
