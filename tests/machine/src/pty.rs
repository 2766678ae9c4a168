//! A pseudo-terminal for programs that need one.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Our side of a terminal.
#[derive(Debug)]
pub struct Pty(OwnedFd);

impl Pty {
    /// Opens a terminal of this size. Returns the program's side too.
    pub fn open(columns: u16, rows: u16) -> io::Result<(Self, OwnedFd)> {
        let pty = Self(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?);
        grantpt(&pty.0)?;
        unlockpt(&pty.0)?;
        let theirs = File::options().read(true).write(true).open(pty.path()?)?;
        pty.resize(columns, rows)?;
        Ok((pty, theirs.into()))
    }

    pub fn path(&self) -> io::Result<String> {
        Ok(ptsname(&self.0, Vec::new())?.to_string_lossy().into_owned())
    }

    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.0, size)?)
    }

    pub fn say(&self, text: &str) -> io::Result<()> {
        rustix::io::write(&self.0, text.as_bytes())?;
        Ok(())
    }

    /// Reads once what arrives within this time; empty if that is nothing.
    ///
    /// # Errors
    /// EIO: no process has the other side open.
    pub fn read(&self, pause: Duration) -> io::Result<Vec<u8>> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec::try_from(pause).map_err(io::Error::other)?))? == 0 {
            return Ok(Vec::new());
        }
        let mut piece = vec![0; 65536];
        let count = rustix::io::read(&self.0, &mut piece)?;
        piece.truncate(count);
        Ok(piece)
    }
}
