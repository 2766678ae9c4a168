//! SFTP sessions with a guest, the names of paths on both sides, and the progress of a transfer,
//! shown on stderr if that is a terminal.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::sftp::client::{self, Client};
use super::sftp::wire::NO_SUCH_FILE;
use crate::daemon;
use crate::{Agent, Limit, Timed, connecting, printable};

pub type Session = Client<Timed>;

/// Limit for a query after a command failed.
const PATH_LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time without progress. A file system that hangs for a while recovers sooner.
pub const SILENCE: Duration = Duration::from_secs(120);

/// Names a path in the guest, so that it is not mistaken for a local one.
pub fn guest(path: &Path) -> String {
    format!("in the guest, {}", printable::name(path))
}

pub fn local(path: &Path) -> String {
    printable::name(path)
}

/// Opens a session. An unreachable agent is an error.
pub fn start(root: &Path, name: &str) -> Result<Session> {
    open(&daemon::reach(root, name)?, connecting(), SILENCE)
}

/// Opens a session within `limit`, in which each answer must make progress within `silence`.
pub fn open(agent: &Agent, limit: Limit, silence: Duration) -> Result<Session> {
    Client::start(Timed::new(connect(agent, limit)?, Limit::Each(silence)))
}

pub(super) fn connect(agent: &Agent, limit: Limit) -> Result<UnixStream> {
    agent.upgrade(("GET", "/1.0/sftp"), "sftp", b"", limit)
}

/// Returns whether a path is known to be missing or not a directory.
pub fn is_no_directory(agent: &Agent, path: &Path) -> bool {
    let session = open(agent, connecting(), PATH_LOOK_TIMEOUT);
    match session.and_then(|mut session| session.stat(path)) {
        Ok(attrs) => !attrs.is_directory(),
        Err(error) => client::code(&error) == Some(NO_SUCH_FILE),
    }
}

/// Returns the bar of one transfer. Length 0 means unknown, as for files in /proc.
pub(crate) fn bar(name: &str, length: u64) -> ProgressBar {
    // A `wide` element gets the remaining columns and is truncated, so that no line wraps.
    let (bar, template) = match length {
        0 => (ProgressBar::no_length(), "{wide_msg} {bytes:>10}"),
        _ => (ProgressBar::new(length), "{wide_msg} {percent:>3}% {eta:>4}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(printable::text(name));
    bar
}
