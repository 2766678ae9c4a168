//! The record of `mote-agent freeze`: whether file systems are frozen, so that writers block.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, ftruncate};

use crate::runtime::run_dir;
use crate::sys::file::{self, OFlags};

/// Returns the deadline (time since boot) from the first bytes of [`run_dir::FREEZE`].
pub(crate) fn until(bytes: [u8; 8]) -> Duration {
    Duration::from_millis(u64::from_le_bytes(bytes))
}

pub(crate) fn is_frozen() -> bool {
    let mut bytes = [0; 8];
    cfg!(feature = "freeze")
        && file::open(&Path::new("/").join(run_dir::FREEZE), OFlags::RDONLY)
            .is_ok_and(|mut file| file.read_exact(&mut bytes).is_ok())
        && crate::sys::since_boot() < until(bytes)
}

/// Clears the record of a killed guard or an earlier boot. A running guard holds the lock.
pub(crate) fn forget(root: &Path) {
    if cfg!(feature = "freeze")
        && let Ok(file) = file::open(&root.join(run_dir::FREEZE), OFlags::WRONLY)
        && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    {
        let _forgotten = ftruncate(&file, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::runtime::scratch;

    #[test]
    fn clears_the_record_of_a_dead_guard() {
        let root = scratch("forget-frozen");
        forget(&root);
        let path = root.join(run_dir::FREEZE);
        std::fs::create_dir_all(root.join(run_dir::DIRECTORY)).unwrap();
        std::fs::write(&path, [1; 13]).unwrap();
        let guard = File::open(&path).unwrap();
        flock(&guard, FlockOperation::LockExclusive).unwrap();
        forget(&root);
        assert_eq!(std::fs::read(&path).unwrap(), [1; 13]);
        drop(guard);
        forget(&root);
        assert_eq!(std::fs::read(&path).unwrap(), []);
    }
}
