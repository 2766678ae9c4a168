//! One agent at a time: a file lock that its process releases when it ends. Also removes files of
//! an earlier boot.
//!
//! An initramfs may start the agent before the final `/run` is mounted; the mount then hides the
//! lock file. The agent renews the lock in the new `/run` ([`Lock::keep`]). Until then, other
//! processes find the agent by its open file in `/proc` (`incumbent`).

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use crate::handover::incumbent;
use crate::handover::lock_file::{self, LockFile, take};
use crate::runtime::{io_error, log, look_for};
use crate::transport::Transport;

const ANOTHER: &str = "another mote-agent is running";

/// Time limit for an initramfs' agent to exit.
const REPLACED: Duration = Duration::from_secs(5);

/// The agent's lock, held as long as the agent runs.
pub(crate) struct Lock(LockFile);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The lock's path still leads to the locked file.
    Same,
    /// The lock was renewed in a new directory, which lacks the other files.
    Renewed,
    /// The lock could not be renewed: the reason.
    Lost(String),
}

impl Lock {
    pub(crate) fn release(&mut self) {
        self.0.release();
    }

    /// Renews the lock if its path no longer leads to the locked file. Never waits.
    pub(crate) fn keep(&mut self, root: &Path) -> Kept {
        if self.0.is_named() {
            return Kept::Same;
        }
        match take(root) {
            Ok(Some(lock)) => {
                self.0 = lock;
                self.0.lock_again();
                Kept::Renewed
            }
            Ok(None) => Kept::Lost(another(root).to_string()),
            // Logged at start.
            Err(why) if is_read_only(&why) && !self.0.is_there() => Kept::Same,
            Err(why) => Kept::Lost(why.to_string()),
        }
    }
}

/// Takes the lock; creates `/run/mote` if missing. If `/run` is read-only, the agent continues
/// without a lock. An initramfs' agent hands its listener to one that `takes_over`, and serves the
/// host until `prepare` has returned.
/// Errors: another agent runs; the directory or file cannot be created or locked.
pub(crate) fn acquire(
    root: &Path,
    takes_over: Option<&Transport>,
    prepare: &mut dyn FnMut(),
) -> io::Result<Lock> {
    let mut lock = take(root).transpose();
    let other = if lock.is_some() { incumbent::hidden(root) } else { incumbent::holder(root) };
    if let Some(other) = other {
        if !takes_over.is_some_and(|transport| other.makes_room(transport, prepare)) {
            return Err(io_error(format!("{ANOTHER}: {other}")));
        }
        // The other agent closes its listeners before it releases the lock.
        let gone = || incumbent::hidden(root).is_none().then_some(());
        match lock {
            None => lock = look_for(REPLACED, || take(root).transpose()),
            Some(_) => drop(look_for(REPLACED, gone)),
        }
    }
    let lock = match lock.transpose() {
        Ok(lock) => lock.ok_or_else(|| another(root))?,
        Err(why) if is_read_only(&why) => {
            log::warn(format_args!("{why}; until then mote cannot detect a second agent"));
            LockFile::none(root)
        }
        Err(why) => return Err(why),
    };
    lock_file::tidy(root);
    Ok(Lock(lock))
}

/// Returns the error for a lock held by another process.
fn another(root: &Path) -> io::Error {
    io_error(match lock_file::pid(root) {
        Some(pid) => format!("{ANOTHER}: process {pid}"),
        None => ANOTHER.into(),
    })
}

fn is_read_only(why: &io::Error) -> bool {
    why.kind() == ErrorKind::ReadOnlyFilesystem
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::running::{Running, running};
    use crate::runtime::{chmod, put, run_dir, scratch};

    fn another_process(sees: &dyn Fn() -> bool) {
        assert!(crate::sys::run_in_fork(Duration::from_secs(30), sees));
    }

    fn taken(root: &Path) -> io::Result<Lock> {
        acquire(root, None, &mut || ())
    }

    fn refusal(root: &Path) -> Option<String> {
        taken(root).err().map(|why| why.to_string())
    }

    #[test]
    fn forgets_files_of_an_earlier_boot() {
        let root = scratch("forget");
        let freeze = root.join(run_dir::FREEZE);
        // The boot id, and whether the files are still there after the next agent's start.
        for (boot, known) in [("a\n", false), ("a\n", true), ("b\n", false), ("b\n", true)] {
            put(&root, "proc/sys/kernel/random/boot_id", boot);
            drop(taken(&root).unwrap());
            for path in run_dir::OF_A_BOOT {
                assert_eq!(root.join(path).exists(), known, "{boot} {path}");
                std::fs::write(root.join(path), "Ready").unwrap();
            }
            assert_eq!(std::fs::read(&freeze).is_ok_and(|until| !until.is_empty()), known);
            std::fs::write(&freeze, [1; 13]).unwrap();
        }
    }

    #[test]
    fn ignores_files_that_others_could_write() {
        let root = scratch("believed");
        drop(taken(&root).unwrap());
        let hanging = root.join(run_dir::HANGING);
        for (mode, is_kept) in [(0o600, true), (0o660, false)] {
            std::fs::write(&hanging, "1 /a\n").unwrap();
            chmod(&hanging, mode);
            drop(taken(&root).unwrap());
            assert_eq!(hanging.exists(), is_kept);
        }
    }

    #[test]
    fn a_single_failed_check_does_not_end_the_lock() {
        let root = scratch("once");
        let mut lock = taken(&root).unwrap();
        lock.0.lose();
        assert_eq!(lock.keep(&root), Kept::Renewed);
        another_process(&|| matches!(running(&root), Running::Yes));
    }

    #[test]
    fn rejects_a_directory_of_another_user() {
        use std::os::unix::fs::{chown, symlink};

        let root = scratch("theirs");
        let path = root.join("run/mote");
        std::fs::create_dir_all(&path).unwrap();
        let refused = || {
            let why = refusal(&root).unwrap();
            assert!(why.ends_with("users other than root can change it; remove it"), "{why}");
        };
        chmod(&path, 0o777);
        refused();
        chmod(&path, 0o755);
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(65_534), None).unwrap();
            refused();
        }
        std::fs::rename(&path, root.join("elsewhere")).unwrap();
        symlink(root.join("elsewhere"), &path).unwrap();
        refused();
        std::fs::remove_file(&path).unwrap();
        assert!(taken(&root).is_ok());
    }

    #[test]
    fn reports_the_lock_holder_only_if_it_is_root() {
        let root = scratch("holder");
        let _lock = taken(&root).unwrap();
        let ours = std::process::id();
        let holds = |uids: &str| {
            let status = format!("Name:\tx\nUid:\t{uids}\n");
            put(&root, &format!("proc/{ours}/status"), status);
            let is_found = || incumbent::holder(&root).is_some();
            crate::sys::run_in_fork(Duration::from_secs(30), &is_found)
        };
        assert!(holds("0\t0\t0\t0"));
        assert!(!holds("0\t1000\t0\t0") && !holds("1000\t0\t0\t0"));
    }

    #[test]
    fn rejects_a_second_agent_until_the_first_ends() {
        let root = scratch("lock");
        assert!(matches!(running(&root), Running::No));
        let first = taken(&root).unwrap();
        let another = format!("{ANOTHER}: process {}", std::process::id());
        another_process(&|| {
            matches!(running(&root), Running::Yes) && refusal(&root).as_ref() == Some(&another)
        });
        drop(first);
        another_process(&|| refusal(&root).is_none());
    }
}
