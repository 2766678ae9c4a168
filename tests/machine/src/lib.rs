//! The machine that tests run on: its slowdown compared with an idle one ([`patient`], [`wait`]),
//! private namespaces if this user may create them ([`in_private`]), programs with a time limit
//! ([`bounded`]), and terminals ([`Pty`]). For the tests of all crates.
#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]
#![allow(missing_debug_implementations, reason = "no test prints these")]

pub use rights::{Private, in_private, private, skipped};
pub use speed::{SLOWDOWN, found, in_time, patient, slowdown, until, wait};

use std::fs::File;
use std::io::{self, Result};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

mod rights;
mod speed;

/// Limit for any program that a test waits for: longer than the slowest takes on an idle machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Starts a program and kills it if it has not ended within [`LIMIT`] on an idle machine.
pub fn bounded(command: &mut Command) -> Result<Child> {
    within(command, patient(LIMIT))
}

/// Like [`Command::output`], without input and with the limit of [`bounded`].
pub fn output(command: &mut Command) -> Result<Output> {
    let pipe = Stdio::piped;
    bounded(command.stdin(Stdio::null()).stdout(pipe()).stderr(pipe()))?.wait_with_output()
}

/// Starts a program and kills it if it has not ended after `limit`.
pub fn within(command: &mut Command, limit: Duration) -> Result<Child> {
    let child = command.spawn()?;
    // It has not been reaped yet, so its id is still valid.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let name = format!("{command:?}");
    thread::spawn(move || {
        let limit = Timespec::try_from(limit).expect("a limit");
        let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
        if ended == Ok(0) && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            eprintln!("killed, since it did not end: {name}");
        }
    });
    Ok(child)
}

const SHOWN: usize = 300;
/// Longest single wait for output, after which the end of the program is noticed.
const MOMENT: Duration = Duration::from_millis(200);

pub struct Pty {
    fd: OwnedFd,
    /// Output that [`Pty::until`] has not returned.
    pub text: String,
    pub bytes: usize,
}

impl Pty {
    pub fn open(columns: u16, rows: u16) -> Result<(Self, OwnedFd)> {
        let fd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&fd)?;
        unlockpt(&fd)?;
        let pty = Self { fd, text: String::new(), bytes: 0 };
        let theirs = File::options().read(true).write(true).open(pty.path()?)?;
        pty.resize(columns, rows)?;
        Ok((pty, theirs.into()))
    }

    pub fn path(&self) -> Result<String> {
        Ok(ptsname(&self.fd, Vec::new())?.to_string_lossy().into_owned())
    }

    pub fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.fd, size)?)
    }

    pub fn say(&self, text: &str) -> Result<()> {
        rustix::io::write(&self.fd, text.as_bytes())?;
        Ok(())
    }

    /// Reads until `wanted` appears, and returns everything up to it.
    pub fn until(&mut self, wanted: &str, limit: Duration) -> Result<String> {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.text.find(wanted) {
                let rest = self.text.split_off(at + wanted.len());
                return Ok(std::mem::replace(&mut self.text, rest));
            }
            if begun.elapsed() > limit {
                let end = self.end_of_text();
                return Err(io::Error::other(format!("{wanted:?} did not come in time: {end:?}")));
            }
            self.read(MOMENT).map_err(|error| {
                io::Error::other(format!("no {wanted:?}, but {:?}: {error}", self.end_of_text()))
            })?;
        }
    }

    pub fn end_of_text(&self) -> String {
        self.text.chars().skip(self.text.chars().count().saturating_sub(SHOWN)).collect()
    }

    /// Reads once, waiting at most `pause`. Returns whether any output arrived.
    ///
    /// # Errors
    /// EIO: no process has the other side open.
    pub fn read(&mut self, pause: Duration) -> Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec::try_from(pause).map_err(io::Error::other)?))? == 0 {
            return Ok(false);
        }
        let mut piece = vec![0; 65536];
        let count = rustix::io::read(&self.fd, &mut piece)?;
        self.bytes += count;
        self.text += &String::from_utf8_lossy(&piece[..count]);
        Ok(count > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn ends_a_program_that_never_ends() {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cat = within(&mut cat, Duration::from_millis(50)).expect("cat");
        let count = cat.stdout.as_mut().expect("its output").read(&mut [0]).expect("a read");
        assert_eq!((count, cat.wait().expect("its end").code()), (0, None));
    }
}
