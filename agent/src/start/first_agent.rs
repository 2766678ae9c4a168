//! The agent that an initramfs has started, as the one sees it that takes over from it in the real root.

use std::path::Path;

use rustix::process::{Pid, Signal};

use crate::built;
use crate::net::transport::Transport;
use crate::runtime::log;
use crate::runtime::small_files::read_bounded;
use crate::start::anew::{INITRAMFS, LEFT};
use crate::status::view;
use crate::sys;

/// Whether one is past its own start, and so serves the host.
pub(crate) fn serves(root: &Path) -> bool {
    view::writer(root)
        .is_some_and(|(pid, state)| !view::is_waiting(&state) && find(root, pid).is_some())
}

/// Takes over its listener and asks it to make room; false if the process is none.
pub(super) fn makes_room(root: &Path, pid: Option<u32>, transport: &Transport) -> bool {
    let Some(pid) = pid.filter(|_| built::INITRAMFS).and_then(|pid| find(root, pid)) else {
        return false;
    };
    log::info(format_args!("taking over from the initramfs' agent, process {pid}"));
    transport.take_over(pid);
    sys::kill(pid, Signal::USR1.as_raw());
    true
}

/// The process, if its command line is that of such an agent.
#[inline(never)] // its size
fn find(root: &Path, pid: u32) -> Option<Pid> {
    let words = root.join(format!("proc/{pid}/cmdline"));
    let words = read_bounded(&words, view::LONGEST).ok()?;
    let mut words = words.split(|byte| *byte == 0);
    let is = words.any(|word| [INITRAMFS, LEFT].iter().any(|mark| mark.as_bytes() == word));
    Pid::from_raw(i32::try_from(pid).ok().filter(|_| is)?)
}
