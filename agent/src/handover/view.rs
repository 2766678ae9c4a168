//! Reads the status file in `/run/mote`, for `mote-agent status` and for the next agent.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use mote_core::status::view::View;

use crate::runtime::{look_for, read_bounded, run_dir};

/// Maximum size of the status file, in bytes.
const MAX_STATUS_FILE: u64 = 64 * 1024;
/// Maximum wait for a status file: the agent may be starting or writing it.
const WRITTEN: Duration = Duration::from_millis(300);

/// Reads the status file of the agent that runs on `root`. Errors: why there is none, with advice,
/// to print instead.
pub(crate) fn read(root: &Path) -> Result<View<'static>, String> {
    let path = root.join(run_dir::STATUS);
    let read = || read_bounded(&path, MAX_STATUS_FILE);
    look_for(WRITTEN, || View::read(&read().ok()?)).ok_or_else(|| {
        let path = path.display();
        match read() {
            Ok(_) => format!("{path} is corrupt; restart the agent"),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                format!("{path} is missing: the agent is starting, or /run is full")
            }
            Err(error) => format!("{path}: {error}"),
        }
    })
}

/// Returns the status file's current content, without waiting.
pub(crate) fn current(root: &Path) -> Option<View<'static>> {
    View::read(&read_bounded(&root.join(run_dir::STATUS), MAX_STATUS_FILE).ok()?)
}
