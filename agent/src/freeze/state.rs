//! Who freezes, and until when, as a file in `/run/mote` that the guard has locked. It is never removed: who waits for the
//! lock waits for the right one. It is written only while nothing is frozen.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::process::{Pid, getpid};

use crate::runtime::log::frozen;
use crate::runtime::run_dir;
use crate::runtime::small_files::{make_directory, read_to_end};

/// Length of what has a fixed one, bytes.
const SIZE: usize = 13;
/// Longest file, bytes: hooks that failed are named in it.
const LONGEST: u64 = 1 << 20;

/// How a freeze has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// There was none.
    None,
    /// It has not: its guard is there, or was killed.
    Open,
    /// All were frozen until somebody asked to thaw them.
    Asked,
    /// So it was, but a hook failed after it.
    Hooks,
    /// Nobody had asked when the time was over.
    Late,
    /// Another program had thawed one before.
    Before,
    /// One cannot be thawed.
    Stuck,
}

impl End {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::None | Self::Open | Self::Asked => "not frozen",
            Self::Hooks => "thawed, but a hook failed",
            Self::Late => "not frozen any more: the time was over",
            Self::Before => "not frozen any more: another program had thawed",
            Self::Stuck => "not everything is thawed",
        }
    }
}

/// What is known of it.
#[derive(Debug)]
pub(super) struct Known {
    /// The guard's process, if there is one.
    pub(super) guard: Option<Pid>,
    /// When it thaws, in time since boot; zero while nothing is frozen.
    pub(super) until: Duration,
    /// How the last one has ended.
    pub(super) end: End,
    /// What failed as it ended, in words, each after a semicolon.
    pub(super) failed: String,
}

/// Written by the guard.
#[derive(Debug)]
pub(super) struct State(File);

impl State {
    /// Takes the lock.
    ///
    /// # Errors
    /// That another has it; any error of open(2), flock(2) and pwrite(2): nothing is frozen of which nobody would know.
    pub(super) fn take(root: &Path) -> io::Result<Self> {
        make_directory(&root.join(run_dir::DIRECTORY))?;
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).mode(0o600);
        let file = options.open(root.join(run_dir::FREEZE))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| Self::taken())?;
        let state = Self(file);
        ftruncate(&state.0, SIZE as u64)?;
        state.say(Duration::ZERO, End::Open)?;
        Ok(state)
    }

    /// What is said of a lock that another one has.
    pub(super) fn taken() -> io::Error {
        io::Error::other("something is frozen already")
    }

    /// Says that nothing is frozen, how that has ended, and what failed.
    #[inline(never)] // its size
    pub(super) fn end(&self, end: End, failed: &str) {
        let _told = self.say(Duration::ZERO, end);
        let _cut = ftruncate(&self.0, SIZE as u64);
        let _told = self.0.write_all_at(failed.as_bytes(), SIZE as u64);
    }

    /// Says until when all is frozen, or how that has ended. A reader sees the old text or the new one.
    ///
    /// # Errors
    /// Any error of pwrite(2).
    #[inline(never)] // its size
    pub(super) fn say(&self, until: Duration, end: End) -> io::Result<()> {
        let process = u128::from(getpid().as_raw_nonzero().get().unsigned_abs());
        // 8 bytes, 4, 1.
        let all = until.as_millis() | process << 64 | u128::from(end as u8) << 96;
        self.0.write_all_at(all.to_le_bytes().get(..SIZE).unwrap_or_default(), 0)
    }

    /// What is known now.
    #[inline(never)] // its size
    pub(super) fn look(root: &Path) -> Known {
        let (guard, failed) = (None, String::new());
        let mut known = Known { guard, until: Duration::ZERO, end: End::None, failed };
        let Ok(file) = File::open(root.join(run_dir::FREEZE)) else { return known };
        let is_held = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
        let all = read_to_end(file.as_fd(), LONGEST).unwrap_or_default();
        let (bytes, failed) = all.split_first_chunk::<SIZE>().unwrap_or((&[0; SIZE], b""));
        known.failed = String::from_utf8_lossy(failed).into_owned();
        let [until @ .., a, b, c, d, end] = *bytes;
        if is_held {
            known.guard = Pid::from_raw(i32::from_le_bytes([a, b, c, d]));
            known.until = frozen::until(until);
        }
        known.end = match end {
            1 => End::Open,
            2 => End::Asked,
            3 => End::Hooks,
            4 => End::Late,
            5 => End::Before,
            6 => End::Stuck,
            _ => End::None,
        };
        known
    }

    /// Waits until the guard has ended; what is known then.
    pub(super) fn left_by(root: &Path) -> Known {
        if let Ok(file) = File::open(root.join(run_dir::FREEZE)) {
            let _ended = flock(&file, FlockOperation::LockShared);
        }
        Self::look(root)
    }
}
