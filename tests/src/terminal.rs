//! A pseudo-terminal for programs that need one.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use mote_machine::Pty;
use rustix::termios::{OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};

use crate::patient;

const SOON: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Terminal {
    ours: Pty,
    pub theirs: OwnedFd,
}

impl Terminal {
    pub fn open(columns: u16, rows: u16) -> Self {
        let (ours, theirs) = Pty::open(columns, rows).expect("a terminal");
        Self { ours, theirs }
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.ours.resize(columns, rows).expect("a size");
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
        self.ours.path().expect("a name")
    }

    pub fn side(&self) -> Stdio {
        self.theirs.try_clone().expect("a descriptor").into()
    }

    pub fn say(&self, text: &str) {
        self.ours.say(text).expect("a terminal");
    }

    pub fn until(&mut self, wanted: &str) {
        let _before = self.ours.until(wanted, patient(SOON)).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Returns the output since the last [`Terminal::until`], without waiting.
    pub fn shown(&mut self) -> &str {
        while self.ours.read(Duration::ZERO).expect("a terminal") {}
        &self.ours.text
    }
}
