//! A pseudo-terminal for programs that need one.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    OptionalActions, SpecialCodeIndex, Winsize, tcgetattr, tcsetattr, tcsetwinsize,
};

use crate::patient;

const SOON: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Terminal {
    ours: OwnedFd,
    pub theirs: OwnedFd,
    text: String,
}

impl Terminal {
    pub fn open(columns: u16, rows: u16) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pty");
        grantpt(&ours).expect("grant");
        unlockpt(&ours).expect("unlock");
        let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("a name");
        let theirs = File::options().read(true).write(true).open(name).expect("a terminal");
        let terminal = Self { ours, theirs: theirs.into(), text: String::new() };
        terminal.resize(columns, rows);
        terminal
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.ours, size).expect("a size");
    }

    /// Makes it carry raw bytes, and signal readiness only for 255 of them: a shorter text can be
    /// read, but wakes no waiter (`VMIN`, termios(3)).
    pub fn never_signal(&self) {
        let mut settings = tcgetattr(&self.theirs).expect("its settings");
        settings.make_raw();
        settings.special_codes[SpecialCodeIndex::VMIN] = u8::MAX;
        settings.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&self.theirs, OptionalActions::Now, &settings).expect("new settings");
    }

    pub fn path(&self) -> String {
        ptsname(&self.ours, Vec::new()).expect("a name").into_string().expect("a name")
    }

    /// Returns the program's side, for one of its streams.
    pub fn side(&self) -> Stdio {
        self.theirs.try_clone().expect("a descriptor").into()
    }

    pub fn say(&self, text: &str) {
        let _written = rustix::io::write(&self.ours, text.as_bytes()).expect("a terminal");
    }

    /// Reads until the text appears.
    pub fn until(&mut self, wanted: &str) {
        let begun = Instant::now();
        while !self.text.contains(wanted) {
            assert!(
                begun.elapsed() < patient(SOON),
                "{wanted:?} did not come in time: {:?}",
                self.text
            );
            self.read(1);
        }
        self.text.clear();
    }

    /// Returns the output since the last [`Terminal::until`], without waiting.
    pub fn shown(&mut self) -> &str {
        while self.read(0) {}
        &self.text
    }

    /// Reads once, waiting up to this many seconds; false if there is nothing.
    fn read(&mut self, seconds: i64) -> bool {
        let mut fds = [PollFd::new(&self.ours, PollFlags::IN)];
        let pause = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let is_there = poll(&mut fds, Some(&pause)).expect("poll") > 0;
        if is_there {
            let mut piece = [0; 4096];
            let count = rustix::io::read(&self.ours, &mut piece).expect("a terminal");
            self.text += &String::from_utf8_lossy(&piece[..count]);
        }
        is_there
    }
}
