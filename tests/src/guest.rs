//! Commands inside the guest, over its second serial port: their output and exit code.

use mote_machine::Pty;
use rustix::termios::{OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};

use crate::prelude::*;

pub struct Guest {
    stream: UnixStream,
    text: Vec<u8>,
}

impl Guest {
    pub fn new(stream: UnixStream, limit: Duration) -> Self {
        let mut guest = Self { stream, text: Vec::new() };
        let _before = guest.until("@@ready@@\n", limit);
        guest
    }

    /// Returns the shell of a guest that was restored from a snapshot.
    pub fn again(stream: UnixStream) -> Self {
        Self { stream, text: Vec::new() }
    }

    pub fn sh(&mut self, command: &str) -> (i32, String) {
        self.sh_within(command, Duration::from_secs(60))
    }

    pub fn sh_within(&mut self, command: &str, limit: Duration) -> (i32, String) {
        assert!(!command.contains('\n'), "one line");
        self.send(command);
        self.reply(limit)
    }

    pub fn reply(&mut self, limit: Duration) -> (i32, String) {
        let mut output = self.until("@@", limit);
        let code = self.until("@@\n", limit);
        let code = code.trim_end_matches("@@\n").parse().expect("an exit code");
        output.truncate(output.len() - 2);
        (code, output)
    }

    pub fn ok(&mut self, command: &str) -> String {
        let (code, output) = self.sh(command);
        assert_eq!(code, 0, "{command}: {output}");
        output
    }

    pub fn send(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).expect("the guest's shell");
    }

    pub fn until(&mut self, mark: &str, limit: Duration) -> String {
        let limit = patient(limit);
        let end = Instant::now() + limit;
        loop {
            let found = self.text.windows(mark.len()).position(|text| text == mark.as_bytes());
            if let Some(at) = found {
                let rest = self.text.split_off(at + mark.len());
                let text = std::mem::replace(&mut self.text, rest);
                return String::from_utf8_lossy(&text).into_owned();
            }
            let left = end.saturating_duration_since(Instant::now());
            let have = String::from_utf8_lossy(&self.text);
            assert!(!left.is_zero(), "waited {limit:?} for {mark:?}, have {have:?}");
            self.stream.set_read_timeout(Some(left)).expect("a timeout");
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the guest is gone; it said {have:?}"),
                Ok(count) => self.text.extend_from_slice(&buffer[..count]),
                Err(_) => {}
            }
        }
    }
}

const SOON: Duration = Duration::from_secs(60);

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

    /// Makes the terminal raw, and readable for a waiter only once 255 bytes have arrived: a
    /// shorter text can be read, but wakes no waiter (`VMIN`, termios(3)).
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
