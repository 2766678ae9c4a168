//! Finds the running agent for commands.

use std::io::ErrorKind;
use std::path::Path;

use rustix::io::Errno;

use crate::handover::incumbent::{self, Incumbent};
use crate::handover::lock_file;
use crate::runtime::run_dir;
use crate::sys::file::{Access, access};

const BLIND: &str = "/run is read-only: mount a tmpfs there";
pub(crate) enum Running {
    Yes,
    /// An agent runs, but a mount hides its files.
    Hidden(Incumbent),
    No,
    /// The lock cannot be opened: the reason and advice.
    Unknown(String),
}

pub(crate) fn running(root: &Path) -> Running {
    match lock_file::held(root) {
        Ok(Some(_)) => Running::Yes,
        // With a read-only `/run`, an agent runs without a lock.
        Err(_) if access(&root.join("run"), Access::WRITE_OK) == Err(Errno::ROFS) => {
            Running::Unknown(BLIND.into())
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let path = root.join(run_dir::LOCK);
            Running::Unknown(format!(
                "cannot open {}: {error}; run the command as root",
                path.display()
            ))
        }
        Ok(None) | Err(_) => incumbent::hidden(root).map_or(Running::No, Running::Hidden),
    }
}
