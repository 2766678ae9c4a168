//! A pseudo-terminal for programs that need one.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Bytes from the end of the output that an error shows.
const SHOWN: usize = 300;
/// Time of one wait for output: an end of the program is noticed after it.
const MOMENT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct Pty {
    fd: OwnedFd,
    /// Output that [`Pty::until`] has not returned.
    pub text: String,
    pub bytes: usize,
}

impl Pty {
    /// Opens a terminal of this size. Returns the program's side too.
    pub fn open(columns: u16, rows: u16) -> io::Result<(Self, OwnedFd)> {
        let fd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&fd)?;
        unlockpt(&fd)?;
        let pty = Self { fd, text: String::new(), bytes: 0 };
        let theirs = File::options().read(true).write(true).open(pty.path()?)?;
        pty.resize(columns, rows)?;
        Ok((pty, theirs.into()))
    }

    pub fn path(&self) -> io::Result<String> {
        Ok(ptsname(&self.fd, Vec::new())?.to_string_lossy().into_owned())
    }

    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.fd, size)?)
    }

    pub fn say(&self, text: &str) -> io::Result<()> {
        rustix::io::write(&self.fd, text.as_bytes())?;
        Ok(())
    }

    /// Reads until `wanted` appears, and returns everything up to it.
    pub fn until(&mut self, wanted: &str, limit: Duration) -> io::Result<String> {
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

    /// Reads once what arrives within this time. Returns whether that is anything.
    ///
    /// # Errors
    /// EIO: no process has the other side open.
    pub fn read(&mut self, pause: Duration) -> io::Result<bool> {
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
