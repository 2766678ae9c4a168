//! The process that freezes, waits and thaws, in a session and control group of its own. It needs no disk to go on, and
//! nobody: not its caller, nor the agent, nor the host.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::syncfs;
use rustix::process::{WaitOptions, wait};

use crate::runtime::small_files::read_to_end;
use crate::sys;
use crate::sys::fd;

use super::disks::{Points, about, add};
use super::hold::{Disks, hold};
use super::hooks;
use super::state::{End, State};

/// The signal that ends its wait: SIGTERM.
pub(super) const THAW: i32 = 15;
/// Signals that end its wait: all with which others end programs, as at a shutdown.
const SIGNALS: [i32; 4] = [1, 2, 3, THAW];
/// What is said of a file system that cannot be opened, written out or frozen in time.
const LATE: &str = "out of time, or it hangs";
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
    if State::look(root).guard.is_some() {
        return Err(State::taken());
    }
    let points = Points::read(root)?;
    let (answer, tell) = fd::pipe()?;
    if sys::freeze::fork()? {
        // Else the caller's end is not seen.
        drop(answer);
        let mut guard = Guard { tell: Some(tell), length, hung: None };
        if let Err(why) = guard.run(root, &points) {
            guard.answer(&format!("-{why}"));
        }
        guard.linger();
        sys::exit(0);
    }
    drop(tell);
    // What hangs meanwhile holds nothing: neither the lock nor a hook.
    let until = sys::since_boot() + length;
    for point in &points.all {
        if !sys::readable(answer.as_fd(), until) {
            return Err(io::Error::other(about(point, LATE)));
        }
        fd::read(&answer, &mut [0])?;
    }
    let answer = read_to_end(answer.as_fd(), ANSWER)?;
    let (kind, text) = answer.split_first().unwrap_or((&b'-', b"its guard was killed"));
    let text = String::from_utf8_lossy(text).into_owned();
    if *kind == DONE { Ok(text) } else { Err(io::Error::other(text)) }
}

struct Guard {
    /// Where the answer goes.
    tell: Option<OwnedFd>,
    length: Duration,
    /// A file system that may be frozen later: its freezing hangs.
    hung: Option<OwnedFd>,
}

impl Guard {
    /// Answers the caller; false if that is gone.
    fn answer(&mut self, text: &str) -> bool {
        self.tell.take().is_none_or(|tell| File::from(tell).write_all(text.as_bytes()).is_ok())
    }

    /// All of it.
    fn run(&mut self, root: &Path, points: &Points) -> io::Result<()> {
        NO_GROUP.iter().for_each(|path| drop(fs::write(root.join(path), "0")));
        sys::lower_oom_score();
        let until = sys::since_boot() + self.length;
        let mut disks = Vec::new();
        for point in &points.all {
            // It is found even if something is mounted over it, and cannot be unmounted while it is frozen.
            let disk = sys::freeze::open(point).ok();
            // What is written now need not be written while all others wait.
            let _written = disk.as_ref().map(syncfs);
            disks.push(disk);
            // Who is gone makes no snapshot.
            self.tell.as_ref().map_or(Ok(0), |tell| fd::write(tell, b"."))?;
        }
        let signals = sys::signals_of(&SIGNALS)?;
        let state = State::take(root)?;
        let hooks = hooks::list(root);
        sys::freeze::stay_in_memory()
            .and_then(|()| hooks::freeze(&hooks, until, note))
            .inspect_err(|_| state.end(End::None, ""))?;
        let (length, mut failed) = (self.length, String::new());
        let mut real = Real {
            guard: self,
            disks: &disks,
            points,
            state: &state,
            signals,
            failed: &mut failed,
        };
        let (mut end, failure) = hold(&mut real, disks.len(), length);
        if end == End::Late {
            log("file systems thawed, as the time was over");
        }
        let is_well = hooks::thaw(&hooks, &mut failed, note);
        if end == End::Asked && !is_well {
            end = End::Hooks;
        }
        state.end(end, &failed);
        let Some((at, error)) = failure else { return Ok(()) };
        let is_hung = error == libc::ETIMEDOUT;
        let mut why = match points.all.get(at) {
            Some(point) => about(point, &if is_hung { LATE.to_owned() } else { words(error) }),
            None => "nothing here can be frozen".to_owned(),
        };
        why.push_str(&failed);
        if is_hung {
            self.hung = disks.into_iter().nth(at).flatten();
        }
        Err(io::Error::other(why))
    }

    /// Waits for what hangs, without the lock: its file system is frozen if the call that hangs ends after all.
    fn linger(&self) {
        while let Some(disk) = &self.hung {
            let is_over = wait(WaitOptions::empty()).is_err();
            sys::freeze::thaw_here(disk.as_fd());
            if is_over {
                break;
            }
        }
    }
}

/// An error's number in words.
fn words(error: i32) -> String {
    io::Error::from_raw_os_error(error).to_string()
}

/// Notes and logs what was not thawed.
#[inline(never)] // its size
pub(super) fn note(failed: &mut String, text: &str) {
    log(text);
    failed.push_str("; ");
    failed.push_str(text);
}

/// Writes a line to the kernel's log.
#[inline(never)] // its size
fn log(text: &str) {
    if let Ok(mut log) = File::options().write(true).open("/dev/kmsg") {
        let _told = log.write_all(format!("<4>mote-agent: {text}\n").as_bytes());
    }
}

/// The file systems as they are.
struct Real<'g> {
    guard: &'g mut Guard,
    disks: &'g [Option<OwnedFd>],
    points: &'g Points,
    state: &'g State,
    signals: OwnedFd,
    /// What could not be thawed, in words.
    failed: &'g mut String,
}

impl Disks for Real<'_> {
    fn now(&self) -> Duration {
        sys::since_boot()
    }

    fn note(&mut self, until: Duration) {
        let _told = self.state.say(until, End::Open);
    }

    fn freeze(&mut self, disk: usize, until: Duration) -> i32 {
        match self.disks.get(disk) {
            Some(Some(disk)) => sys::freeze::freeze(disk.as_fd(), until),
            // It cannot be opened.
            _ => libc::EOPNOTSUPP,
        }
    }

    fn tell(&mut self, errors: &[i32]) -> bool {
        let mut text = format!("+frozen for {} s:", self.guard.length.as_secs());
        let mut others = String::new();
        for (point, error) in self.points.all.iter().zip(errors) {
            add(if *error == 0 { &mut text } else { &mut others }, point);
        }
        others.push_str(&self.points.covered);
        if !others.is_empty() {
            text.push_str("\nleft out:");
            text.push_str(&others);
        }
        self.guard.answer(&text)
    }

    fn wait(&mut self, until: Duration) -> bool {
        sys::readable(self.signals.as_fd(), until)
    }

    fn thaw(&mut self, disk: usize, until: Duration) -> i32 {
        let (Some(Some(open)), Some(point)) = (self.disks.get(disk), self.points.all.get(disk))
        else {
            return 0;
        };
        let error = sys::freeze::thaw(open.as_fd(), until);
        if error != 0 && error != libc::EINVAL {
            note(self.failed, &about(point, &words(error)));
        }
        error
    }
}
