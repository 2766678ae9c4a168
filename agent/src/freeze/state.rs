//! The state of a freeze: a file in `/run/mote` with the guard's process id and deadline, which the
//! guard locks. It is never removed, so that waiters wait for the right lock, and is written only
//! while nothing is frozen.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::process::{Pid, getpid};

use crate::runtime::{io_error, log::frozen, make_directory, read_to_end, run_dir};
use crate::sys::file::{self, OFlags};

/// Length of the fixed part, in bytes.
const SIZE: usize = 13;
/// Maximum size of the file, in bytes. It names the hooks that failed.
const LONGEST: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    None,
    /// The freeze has not ended: the guard is running or was killed.
    Open,
    /// All file systems stayed frozen until a thaw was requested.
    Asked,
    /// Like `Asked`, but a hook failed.
    Hooks,
    /// The time limit passed without a request.
    Late,
    /// Another program had already thawed a file system.
    Before,
    /// A file system cannot be thawed.
    Stuck,
}

impl End {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::None | Self::Open | Self::Asked => "not frozen",
            Self::Hooks => "thawed, but a hook failed",
            Self::Late => "no longer frozen: the time limit expired",
            Self::Before => "no longer frozen: thawed by another program",
            Self::Stuck => "not everything is thawed",
        }
    }
}

pub(super) struct Known {
    pub(super) guard: Option<Pid>,
    /// Deadline of the thaw (time since boot); zero while nothing is frozen.
    pub(super) until: Duration,
    pub(super) end: End,
    /// What failed at the end of the freeze, each item after a semicolon.
    pub(super) failed: String,
}

pub(super) struct State(File);

impl State {
    /// Takes the lock. Errors: another guard has the lock; any error of open(2), flock(2) and
    /// pwrite(2): a freeze must be on record.
    pub(super) fn take(root: &Path) -> io::Result<Self> {
        make_directory(&root.join(run_dir::DIRECTORY))?;
        let file = file::open(&root.join(run_dir::FREEZE), OFlags::RDWR | OFlags::CREATE)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| Self::taken())?;
        let state = Self(file);
        ftruncate(&state.0, SIZE as u64)?;
        state.say(Duration::ZERO, End::Open)?;
        Ok(state)
    }

    pub(super) fn taken() -> io::Error {
        io_error("already frozen")
    }

    /// Records that nothing is frozen, how the freeze ended, and what failed.
    pub(super) fn end(&self, end: End, failed: &str) {
        let _told = self.say(Duration::ZERO, end);
        let _cut = ftruncate(&self.0, SIZE as u64);
        let _told = self.0.write_all_at(failed.as_bytes(), SIZE as u64);
    }

    /// Records the deadline, or how the freeze ended. A reader sees the old or the new record.
    pub(super) fn say(&self, until: Duration, end: End) -> io::Result<()> {
        let process = u128::from(getpid().as_raw_nonzero().get().unsigned_abs());
        // The fields have 8, 4 and 1 bytes.
        let all = until.as_millis() | process << 64 | u128::from(end as u8) << 96;
        self.0.write_all_at(all.to_le_bytes().get(..SIZE).unwrap_or_default(), 0)
    }

    pub(super) fn look(root: &Path) -> Known {
        let (guard, failed) = (None, String::new());
        let mut known = Known { guard, until: Duration::ZERO, end: End::None, failed };
        let Ok(file) = file::open(&root.join(run_dir::FREEZE), OFlags::RDONLY) else {
            return known;
        };
        let is_held = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
        let all = read_to_end(file.as_fd(), LONGEST).unwrap_or_default();
        let (bytes, failed) = all.split_first_chunk::<SIZE>().unwrap_or((&[0; SIZE], b""));
        known.failed = String::from_utf8_lossy(failed).into_owned();
        let [until @ .., a, b, c, d, end] = *bytes;
        if is_held {
            known.guard = Pid::from_raw(i32::from_le_bytes([a, b, c, d]));
            known.until = frozen::until(until);
        }
        use End::{Asked, Before, Hooks, Late, Open, Stuck};
        let all = [Open, Asked, Hooks, Late, Before, Stuck];
        known.end = all.into_iter().find(|known| *known as u8 == end).unwrap_or(End::None);
        known
    }

    pub(super) fn left_by(root: &Path) -> Known {
        if let Ok(file) = file::open(&root.join(run_dir::FREEZE), OFlags::RDONLY) {
            let _ended = flock(&file, FlockOperation::LockShared);
        }
        Self::look(root)
    }
}
