//! Whether file systems are frozen, as the guard of `mote-agent freeze` says: who writes to one has to wait.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use crate::runtime::run_dir;

/// Until when, in time since boot, by the first bytes of [`run_dir::FREEZE`].
pub(crate) fn until(bytes: [u8; 8]) -> Duration {
    Duration::from_millis(u64::from_le_bytes(bytes))
}

/// Whether that is so now.
#[inline(never)] // its size
pub(crate) fn is_frozen() -> bool {
    let mut bytes = [0; 8];
    cfg!(feature = "freeze")
        && File::open(Path::new("/").join(run_dir::FREEZE))
            .is_ok_and(|mut file| file.read_exact(&mut bytes).is_ok())
        && crate::sys::since_boot() < until(bytes)
}
