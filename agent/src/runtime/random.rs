//! Random bytes from the kernel.

use ring::rand::{SecureRandom, SystemRandom};

use crate::runtime::log;

/// Fills `bytes` with random bytes. Aborts if the kernel has none.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    // Fails only without getrandom(2), but then TLS has already failed.
    if SystemRandom::new().fill(bytes).is_err() {
        log::error(format_args!("the kernel has no random numbers; mote needs getrandom(2)"));
        std::process::abort();
    }
}
