//! The process that freezes, waits and thaws, in a session and control group of its own. It needs no disk to go on, and
//! nobody: not its caller, nor the agent, nor the host.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::syncfs;
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

use crate::runtime::small_files::read_to_end;
use crate::sys;
use crate::sys::fd;

use super::disks::{Disks, add};
use super::hooks;
use super::state::{End, State};

/// The signal that ends its wait: SIGTERM.
pub(super) const THAW: i32 = 15;
/// Signals that end its wait: all with which others end programs, as at a shutdown.
const SIGNALS: [i32; 4] = [1, 2, 3, THAW];
/// The error of a file system that was not frozen in time: `ETIMEDOUT`.
const TIMED_OUT: i32 = Errno::TIMEDOUT.raw_os_error();
/// Longest answer, bytes: each mount point is in it.
const ANSWER: u64 = 1 << 20;
/// Beginning of the answer once all is frozen.
const DONE: u8 = b'+';
/// Where a process goes that no service is to take with it: by cgroup v2, by v1.
const NO_GROUP: [&str; 2] = ["sys/fs/cgroup/cgroup.procs", "sys/fs/cgroup/systemd/cgroup.procs"];

/// Starts it; returns what it says once all is frozen.
///
/// # Errors
/// Why nothing is.
pub(super) fn start(root: &Path, length: Duration) -> io::Result<String> {
    let (answer, tell) = fd::pipe()?;
    if sys::freeze::fork()? {
        // Else the caller's end is not seen.
        drop(answer);
        let mut guard = Guard { tell: Some(tell), length, until: Duration::ZERO };
        if let Err(why) = guard.run(root) {
            guard.answer(&format!("-{why}"));
        }
        std::process::exit(0);
    }
    drop(tell);
    let answer = read_to_end(answer.as_fd(), ANSWER)?;
    let (kind, text) = answer.split_first().unwrap_or((&b'-', b"its guard was killed"));
    let text = String::from_utf8_lossy(text).into_owned();
    if *kind == DONE { Ok(text) } else { Err(io::Error::other(text)) }
}

struct Guard {
    /// Where the answer goes.
    tell: Option<OwnedFd>,
    length: Duration,
    until: Duration,
}

impl Guard {
    /// Answers the caller; false if that is gone.
    fn answer(&mut self, text: &str) -> bool {
        self.tell.take().is_none_or(|tell| File::from(tell).write_all(text.as_bytes()).is_ok())
    }

    /// All of it.
    fn run(&mut self, root: &Path) -> io::Result<()> {
        let signals = sys::signals_of(&SIGNALS)?;
        let state = State::take(root)?;
        let hooks = hooks::list(root);
        NO_GROUP.iter().for_each(|path| drop(fs::write(root.join(path), "0")));
        sys::lower_oom_score();
        sys::freeze::stay_in_memory()?;
        hooks::freeze(&hooks, self.length)?;
        let done = Disks::open(root).and_then(|disks| self.freeze(&disks, &state, &signals));
        hooks::thaw(&hooks, self.length);
        done
    }

    /// Freezes, waits and thaws.
    fn freeze(&mut self, disks: &Disks, state: &State, signals: &OwnedFd) -> io::Result<()> {
        for disk in &disks.open {
            // What is written now need not be written while all others wait.
            let _written = syncfs(disk);
        }
        self.until = sys::since_boot() + self.length;
        state.say(self.until, End::None);
        let (errors, failure) = sys::freeze::freeze(&disks.open, self.until);
        let is_frozen = failure == 0 && errors.contains(&0);
        let mut end = End::None;
        if is_frozen {
            // Who is gone makes no snapshot.
            let is_asked = !self.answer(&self.told(disks, &errors))
                || sys::readable(signals.as_fd(), self.until);
            end = if is_asked { End::Asked } else { End::Late };
        }
        // The last one first.
        let frozen = errors.iter().zip(&disks.open).rev().filter(|(error, _)| **error == 0);
        for (_, disk) in frozen {
            if !sys::freeze::thaw(disk) {
                end = End::Before;
            }
        }
        if let Some(disk) = disks.open.get(errors.len()).filter(|_| failure == TIMED_OUT) {
            // Whoever hung there goes on now.
            while wait(WaitOptions::empty()).is_ok() {}
            let _thawed = sys::freeze::thaw(disk);
        }
        state.say(Duration::ZERO, end);
        if end == End::Late
            && let Ok(mut log) = File::options().write(true).open("/dev/kmsg")
        {
            let _told =
                log.write_all(b"<4>mote-agent: file systems thawed, as the time was over\n");
        }
        if is_frozen {
            return Ok(());
        }
        Err(io::Error::other(match disks.points.get(errors.len()) {
            Some(point) => format!("{point}: {}", io::Error::from_raw_os_error(failure)),
            None => "nothing here can be frozen".to_owned(),
        }))
    }

    /// What the caller is told: which are frozen and which not.
    fn told(&self, disks: &Disks, errors: &[i32]) -> String {
        let mut text = format!("+frozen for {} s:", self.length.as_secs());
        let mut others = String::new();
        for (point, error) in disks.points.iter().zip(errors) {
            add(if *error == 0 { &mut text } else { &mut others }, point);
        }
        others.push_str(&disks.closed);
        if !others.is_empty() {
            text.push_str("\nleft out:");
            text.push_str(&others);
        }
        text
    }
}
