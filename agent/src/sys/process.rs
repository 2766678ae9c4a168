//! Reaps and kills children.

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};

use super::{Ended, kill};

/// Reaps one ended child, if there is one.
pub(crate) fn reap() -> Option<(Pid, Ended)> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => return Some((pid, Ended::Code(code))),
            (None, Some(signal)) => return Some((pid, Ended::Signal(signal))),
            // Stopped or continued, which was not requested.
            (None, None) => {}
        }
    }
    None
}

pub(crate) fn kill_group(child: Pid) {
    // Right after fork(2) the child has no group of its own yet.
    if kill_process_group(child, Signal::KILL).is_err() {
        kill(child, Signal::KILL.as_raw());
    }
}
