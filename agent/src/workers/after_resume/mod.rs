//! A worker for the slow work after a resume (random numbers, clock, hooks), and the command
//! `sync-time`.

mod clock;
mod hooks;

use std::path::Path;
use std::time::Duration;

use mote_core::resume::clock::Cause;

use crate::options::command::SYNC;
use crate::print;
use crate::sys::file::{self, OFlags};
use crate::sys::restored::{reseed, wall};
use crate::sys::run_in_fork;
use crate::system::signs;

pub(crate) const CLOCK: &str = "clock";
/// The same, if the clock was correct before.
pub(crate) const STOPPED_CLOCK: &str = "clock stopped";
/// Time limit for the hardware RNG: a host without random numbers must not delay the clock.
const HARDWARE: Duration = Duration::from_secs(2);

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
        _ => hooks::tell(Path::new(hooks::DIRECTORY), what),
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
