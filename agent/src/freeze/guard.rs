//! The process that freezes, waits and thaws, in its own session and control group. It depends
//! neither on a disk nor on its caller, the agent or the host.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::syncfs;
use rustix::process::{WaitOptions, wait};

use crate::runtime::{io_error, read_to_end};
use crate::sys::file::{self, OFlags};
use crate::sys::{self, fd};

use super::hold::{Disks, hold};
use super::state::{End, State};
use super::{Points, about, add, hooks};

/// SIGTERM, which ends the wait.
pub(super) const THAW: i32 = 15;
/// Signals that end the wait: those that commonly end programs, for example at a shutdown.
const SIGNALS: [i32; 4] = [1, 2, 3, THAW];
/// Message for a file system that could not be opened, synced or frozen in time.
const LATE: &str = "timed out, or it hangs";
/// Maximum size of the answer, in bytes. It contains every mount point.
const ANSWER: u64 = 1 << 20;
/// First byte of the answer once all is frozen.
const DONE: u8 = b'+';
/// Files that move a process out of its service's control group, with cgroup v2 and v1.
const NO_GROUP: [&str; 2] = ["sys/fs/cgroup/cgroup.procs", "sys/fs/cgroup/systemd/cgroup.procs"];

/// Starts the guard; returns its answer once all is frozen. Errors: why nothing is frozen.
pub(super) fn start(root: &Path, length: Duration) -> io::Result<String> {
    if State::look(root).guard.is_some() {
        return Err(State::taken());
    }
    let points = Points::read(root)?;
    let (answer, tell) = fd::pipe()?;
    if sys::freeze::fork()? {
        // Close it, or the guard would not notice that the caller exits.
        drop(answer);
        let mut guard = Guard { tell: Some(tell), length, hung: None };
        if let Err(why) = guard.run(root, &points) {
            guard.answer(&format!("-{why}"));
        }
        guard.linger();
        sys::exit(0);
    }
    drop(tell);
    // If a file system hangs here, nothing else blocks: no lock is held, and no hook has run.
    let until = sys::since_boot() + length;
    for point in &points.all {
        if !sys::readable(answer.as_fd(), until) {
            return Err(io_error(about(point, LATE)));
        }
        fd::read(&answer, &mut [0])?;
    }
    let answer = read_to_end(answer.as_fd(), ANSWER)?;
    let (kind, text) = answer.split_first().unwrap_or((&b'-', b"its guard was killed"));
    let text = String::from_utf8_lossy(text).into_owned();
    if *kind == DONE { Ok(text) } else { Err(io_error(text)) }
}

struct Guard {
    tell: Option<OwnedFd>,
    length: Duration,
    /// A file system whose freeze call hangs and may still succeed later.
    hung: Option<OwnedFd>,
}

impl Guard {
    /// Answers the caller; returns false if the caller has exited.
    fn answer(&mut self, text: &str) -> bool {
        self.tell.take().is_none_or(|tell| File::from(tell).write_all(text.as_bytes()).is_ok())
    }

    fn run(&mut self, root: &Path, points: &Points) -> io::Result<()> {
        NO_GROUP.iter().for_each(|path| drop(file::write(&root.join(path), "0")));
        sys::lower_oom_score();
        let until = sys::since_boot() + self.length;
        let mut disks = Vec::new();
        for point in &points.all {
            // An open directory stays reachable under a later mount, and prevents unmounting.
            let disk = sys::freeze::open(point).ok();
            // Sync before freezing, so that the file systems are frozen for a shorter time.
            let _written = disk.as_ref().map(syncfs);
            disks.push(disk);
            // If the caller has exited, no snapshot follows, so stop here.
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
            log("file systems thawed: the time limit expired");
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
            None => "no file system can be frozen".to_owned(),
        };
        why.push_str(&failed);
        if is_hung {
            self.hung = disks.into_iter().nth(at).flatten();
        }
        Err(io_error(why))
    }

    /// Waits, without the lock, for a freeze call that hangs, and thaws if it succeeds after all.
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

fn words(error: i32) -> String {
    io::Error::from_raw_os_error(error).to_string()
}

pub(super) fn note(failed: &mut String, text: &str) {
    log(text);
    failed.push_str("; ");
    failed.push_str(text);
}

/// Writes a line to the kernel's log.
fn log(text: &str) {
    if let Ok(mut log) = file::open("/dev/kmsg".as_ref(), OFlags::WRONLY) {
        let _told = log.write_all(format!("<4>mote-agent: {text}\n").as_bytes());
    }
}

struct Real<'g> {
    guard: &'g mut Guard,
    disks: &'g [Option<OwnedFd>],
    points: &'g Points,
    state: &'g State,
    signals: OwnedFd,
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
            // The directory could not be opened.
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
            text.push_str("\nskipped:");
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
