//! The slow work after a resume (random numbers, clock, hooks), and the command `sync-time`.

mod clock;

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use mote_core::resume::clock::Cause;

use crate::options::command::SYNC;
use crate::print;
use crate::runtime::log;
use crate::sys::file::{self, OFlags};
use crate::sys::restored::{reseed, wall};
use crate::sys::run_in_fork;
use crate::system::signs;
use crate::workers::command::{self, hooks};

pub(crate) const CLOCK: &str = "clock";
/// Like [`CLOCK`], if the clock was correct before.
pub(crate) const STOPPED_CLOCK: &str = "clock stopped";
/// Time limit for the hardware RNG: a host without random numbers must not delay the clock.
const HARDWARE: Duration = Duration::from_secs(2);
/// Directory of the administrator's hooks, and the time limit for each.
const HOOKS: (&str, Duration) = ("/etc/mote/restored.d", Duration::from_secs(30));

/// If `what` begins with [`CLOCK`], reseeds, then steps the clock or prints the rest of `what`, the
/// reason not to. If it is [`SYNC`], only steps the clock. Otherwise runs the hooks with `what`.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(what: &str) -> u8 {
    match what {
        SYNC => clock::set(Cause::Asked),
        _ if what.starts_with(CLOCK) => {
            if !run_in_fork(HARDWARE, &random) {
                drop(print::out(format_args!("RNG not fully reseeded; ")));
            }
            match what {
                CLOCK => return clock::set(Cause::Unknown),
                STOPPED_CLOCK => return clock::set(Cause::Stopped),
                _ => drop(print::out(format_args!("{what}\n"))),
            }
            0
        }
        _ => tell(HOOKS.0.as_ref(), what),
    }
}

/// Reseeds the kernel's CRNG from the time, which differs between clones, and from the hardware
/// RNG. Returns whether that worked.
fn random() -> bool {
    let random = file::open("/dev/urandom".as_ref(), OFlags::WRONLY);
    let hardware = file::open("/dev/hwrng".as_ref(), OFlags::RDONLY).ok();
    let times = [wall(), signs::hardware_clock().unwrap_or_default()];
    random.is_ok_and(|random| reseed(&random, hardware.as_ref(), times))
}

/// Runs the hooks that only root can modify, in name order, with this argument, even after a
/// failure. Their output goes to the log.
fn tell(directory: &Path, kind: &str) -> u8 {
    let kind = CString::new(kind).unwrap_or_default();
    for hook in hooks(directory) {
        let name = CString::new(hook.as_os_str().as_bytes()).unwrap_or_default();
        if !matches!(command::run(&[&name, &kind], io::stderr().as_fd(), HOOKS.1), Ok(0)) {
            log::warn(format_args!("{}: failed", hook.display()));
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, read_to_string};

    use super::*;
    use crate::runtime::{chmod, put_mode, scratch};

    #[test]
    fn runs_only_roots_hooks_in_name_order() {
        let root = scratch("restored");
        let (hooks, noted) = (root.join("hooks"), root.join("noted"));
        let text = format!("#!/bin/sh\necho ${{0##*/}} $1 >>{}\nexit 1\n", noted.display());
        for name in ["20-b", "10-a", "10-a~", "b.bak"] {
            put_mode(&hooks, name, &text, 0o755);
        }
        for (name, mode) in [("10-a", 0o700), ("c", 0o644), ("d", 0o777)] {
            put_mode(&hooks, name, &text, mode);
        }
        create_dir_all(hooks.join("e")).unwrap();
        chmod(&hooks, 0o755);
        tell(&hooks, "restored");
        let noted = || read_to_string(&noted).unwrap();
        assert_eq!(noted(), "10-a restored\n20-b restored\n");
        chmod(&hooks, 0o777);
        tell(&hooks, "paused");
        assert!(!noted().contains("paused"));
    }
}
