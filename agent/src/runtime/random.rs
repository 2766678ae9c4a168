//! Random bytes from the kernel.

use ring::rand::{SecureRandom, SystemRandom};

use crate::runtime::log;

/// Fills `bytes` with random bytes. Ends the process if the kernel has none.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    // Fails only without getrandom(2), and without that TLS has failed before.
    if SystemRandom::new().fill(bytes).is_err() {
        log::error(format_args!("no random numbers"));
        std::process::abort();
    }
}
