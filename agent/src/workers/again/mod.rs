//! What is done for a VM that runs again, as far as it may take long: random numbers, the clock, hooks; and `sync-time`.

mod clock;
mod hooks;

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use crate::options::command::SYNC;
use crate::print;
use crate::sys::restored::{reseed, wall};
use crate::system::signs;

/// What is done: random numbers are made anew, then the clock is set.
pub(crate) const CLOCK: &str = "clock";

/// Makes random numbers anew if `what` is empty, and then sets the clock if it is [`CLOCK`]; only sets the clock if it is [`SYNC`];
/// else tells hooks, with this word. Prints what was done.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(what: &str) -> ExitCode {
    match what {
        SYNC => clock::set(true),
        "" | CLOCK => {
            if !random() {
                drop(print::out(format_args!("random numbers as before; ")));
            }
            if what.is_empty() { ExitCode::SUCCESS } else { clock::set(false) }
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
