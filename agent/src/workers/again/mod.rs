//! What is done for a VM that runs again, as far as it may take long: random numbers, the clock, hooks; and `sync-time`.

mod clock;
mod hooks;

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use mote_core::follow::clock::Cause;

use crate::options::command::SYNC;
use crate::print;
use crate::sys::restored::{reseed, wall};
use crate::sys::run_in_fork;
use crate::system::signs;

/// What is done: random numbers are made anew, then the clock is set.
pub(crate) const CLOCK: &str = "clock";
/// The same, of a clock that was right before.
pub(crate) const STOPPED_CLOCK: &str = "clock stopped";
/// Longest time for the hardware's random numbers: a host that gives none is not to keep the clock wrong.
const HARDWARE: Duration = Duration::from_secs(2);

/// Makes random numbers anew if `what` begins with [`CLOCK`], and then sets the clock, or says what else that is: why not. Only
/// sets the clock if it is [`SYNC`]; else tells hooks, with this word. Prints what was done.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(what: &str) -> ExitCode {
    match what {
        SYNC => clock::set(Cause::Asked),
        _ if what.starts_with(CLOCK) => {
            if !run_in_fork(HARDWARE, &random) {
                drop(print::out(format_args!("random numbers not all new; ")));
            }
            match what {
                CLOCK => return clock::set(Cause::Unknown),
                STOPPED_CLOCK => return clock::set(Cause::Stopped),
                _ => drop(print::out(format_args!("{what}\n"))),
            }
            ExitCode::SUCCESS
        }
        _ => hooks::tell(Path::new(hooks::DIRECTORY), what),
    }
}

/// Has the kernel make its random numbers anew, of the time, which differs between two copies, and of the hardware's. Whether
/// it could.
fn random() -> bool {
    let random = File::options().write(true).open("/dev/urandom");
    let hardware = File::open("/dev/hwrng").ok();
    let times = [wall(), signs::hardware_clock().unwrap_or_default()];
    random.is_ok_and(|random| reseed(&random, hardware.as_ref(), times))
}
