//! Reads the status file in `/run/mote`, for `mote-agent status` and for the next agent.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::json::{Document, Value};
use mote_core::report::proc::number;

use crate::runtime::clock::look_for;
use crate::runtime::run_dir;
use crate::runtime::small_files::read_bounded;

/// Longest status file, bytes.
pub(crate) const LONGEST: u64 = 64 * 1024;
/// Longest wait for a status file: the agent may have just started, or be writing it.
const WRITTEN: Duration = Duration::from_millis(300);
/// Prefix of the state of an agent that waits for something before its start.
pub(super) const WAITING: &str = "waiting for ";

/// The status file of the agent that runs on `root`.
///
/// # Errors
/// A message with the reason why it cannot be read, and advice.
#[inline(never)] // its size
pub(crate) fn read(root: &Path) -> Result<Document, String> {
    let path = root.join(run_dir::STATUS);
    // The agent may be writing the file, or be about to.
    let read = || read_bounded(&path, LONGEST);
    look_for(WRITTEN, || Document::read(read().ok()?).ok()).ok_or_else(|| match read() {
        Ok(_) => format!("{}: nonsense; start the agent again", path.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            format!("{} is not there: the agent just starts, or /run is full", path.display())
        }
        Err(error) => format!("{}: {error}", path.display()),
    })
}

/// Process id of the agent that wrote the status file, and whether it is past its start, if that can be read at once.
#[inline(never)] // its size
pub(crate) fn writer(root: &Path) -> Option<(u64, bool)> {
    let view = read_bounded(&root.join(run_dir::STATUS), LONGEST).ok()?;
    let view = Value::parse(&view).ok()?;
    Some((number(member(view, "pid")?.as_bytes())?, !is_waiting(&member(view, "state")?)))
}

/// Whether the state is that of an agent that waits for something before its start.
pub(crate) fn is_waiting(state: &str) -> bool {
    state.starts_with(WAITING)
}

/// The agent's flavour by its status file.
pub(crate) fn flavour(document: Value<'_>) -> Option<Flavour> {
    Flavour::parse(&member(document, "flavour")?)
}

/// A string member of the status file.
#[inline(never)] // its size
pub(crate) fn member(document: Value<'_>, key: &str) -> Option<String> {
    document.member(key)?.string().ok()
}

/// A member of the status file that is true or false; false if it is not there.
#[inline(never)] // its size
pub(crate) fn is(document: Value<'_>, key: &str) -> bool {
    document.member(key).is_some_and(|member| member.raw() == "true")
}
