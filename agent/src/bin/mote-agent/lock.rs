//! One agent at a time: a lock that dies with its holder; and nothing believed of an earlier boot.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::clock::look_for;
use crate::iso::read_bounded;
use crate::{guest, hanging, log};

/// Whoever looks whether an agent runs ([`is_held`]) has the lock for a moment, which is no reason to
/// end: how long it is tried again.
const LOOKED_AT: Duration = Duration::from_millis(200);

/// Held as long as the agent runs.
pub(crate) struct Lock(#[expect(dead_code, reason = "open is what it is for")] File);

/// Takes the lock; makes `/run/mote` for it and for the other files there.
///
/// # Errors
/// That another agent runs, or what the system says.
pub(crate) fn acquire(root: &Path) -> Result<Lock, String> {
    let directory = root.join("run/mote");
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&directory);
    made.map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let path = directory.join("lock");
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    let locked =
        look_for(LOOKED_AT, || match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => None,
            locked => Some(locked),
        });
    match locked {
        Some(Ok(())) => {
            forget(root, &directory);
            Ok(Lock(file))
        }
        None => Err("another mote-agent is running".into()),
        Some(Err(error)) => Err(format!("cannot lock {}: {error}", path.display())),
    }
}

/// Removes what an agent noted before the last boot: not every guest has its `/run` in memory.
fn forget(root: &Path, directory: &Path) {
    // Without a number there is no telling.
    let Ok(boot) = read_bounded(&root.join("proc/sys/kernel/random/boot_id"), 64) else { return };
    let path = directory.join("boot");
    if read_bounded(&path, 64).is_ok_and(|noted| noted == boot) {
        return;
    }
    for path in [guest::READY, hanging::PATH] {
        let _none = std::fs::remove_file(root.join(path));
    }
    if let Err(error) = std::fs::write(&path, boot) {
        log::debug(format_args!("cannot write {}: {error}", path.display()));
    }
}

/// Whether an agent runs.
pub(crate) fn is_held(root: &Path) -> bool {
    let Ok(file) = File::open(root.join("run/mote/lock")) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_looks_keeps_no_agent_from_starting() {
        let root = crate::share::scratch("looked");
        drop(acquire(&root).unwrap());
        // As `is_held` does it, and then was kept from going on for a while.
        let file = File::open(root.join("run/mote/lock")).unwrap();
        flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
        let looking = std::thread::spawn(move || {
            std::thread::sleep(2 * crate::clock::LOOK);
            drop(file);
        });
        assert_eq!(acquire(&root).err(), None);
        looking.join().unwrap();
    }

    #[test]
    fn ready_is_of_one_boot() {
        let root = crate::share::scratch("forget");
        let (random, ready) = (root.join("proc/sys/kernel/random"), root.join("run/mote/ready"));
        std::fs::create_dir_all(&random).unwrap();
        // The boot's number, and whether Ready is still known when the next agent has started.
        for (boot, known) in [("a\n", false), ("a\n", true), ("b\n", false), ("b\n", true)] {
            std::fs::write(random.join("boot_id"), boot).unwrap();
            drop(acquire(&root).unwrap());
            assert_eq!(ready.exists(), known, "{boot}");
            std::fs::write(&ready, "Ready").unwrap();
        }
    }

    #[test]
    fn a_second_agent_is_refused_until_the_first_is_gone() {
        let root = crate::share::scratch("lock");
        assert!(!is_held(&root));
        let first = acquire(&root).unwrap();
        assert!(is_held(&root));
        assert_eq!(acquire(&root).err(), Some("another mote-agent is running".into()));
        drop(first);
        assert!(acquire(&root).is_ok());
    }
}
