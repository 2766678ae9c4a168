//! A program on a pseudo-terminal.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mote_machine::Pty;

use crate::run;

/// Bytes from the end of the output that an error shows.
const SHOWN: usize = 300;

/// A program on a terminal; killed when dropped.
#[derive(Debug)]
pub struct Terminal {
    ours: Pty,
    child: Child,
    text: String,
    limit: Duration,
    /// Bytes that the program wrote.
    pub bytes: usize,
}

impl Terminal {
    /// Starts a program on a terminal of this size. The limit applies to each wait.
    pub fn start(words: &[&str], columns: u16, rows: u16, limit: Duration) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a terminal: {error}");
        let (ours, theirs) = Pty::open(columns, rows).map_err(failed)?;
        let side = || theirs.try_clone().map(Stdio::from).map_err(failed);
        // In its own session with this terminal, so that signals from keys and size changes reach
        // it.
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(words).stdin(side()?).stdout(side()?).stderr(side()?);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { ours, child, text: String::new(), limit, bytes: 0 })
    }

    pub fn resize(&self, columns: u16, rows: u16) -> Result<(), String> {
        self.ours.resize(columns, rows).map_err(|error| format!("size of a terminal: {error}"))
    }

    pub fn say(&self, text: &str) -> Result<(), String> {
        self.ours.say(text).map_err(|error| format!("typing: {error}"))
    }

    /// Reads until `wanted` appears, and returns everything up to it.
    pub fn until(&mut self, wanted: &str) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.text.find(wanted) {
                let rest = self.text.split_off(at + wanted.len());
                return Ok(std::mem::replace(&mut self.text, rest));
            }
            if begun.elapsed() > self.limit || !self.read() {
                return Err(format!("no {wanted:?} on the terminal, but {:?}", self.end_of_text()));
            }
        }
    }

    /// Reads until the program ends, and returns its exit code.
    pub fn end(mut self) -> Result<(i32, usize), String> {
        let begun = Instant::now();
        while begun.elapsed() < self.limit && self.read() {}
        let status = run::wait(&mut self.child, self.limit)
            .ok_or_else(|| format!("the client did not end: {:?}", self.end_of_text()))?;
        Ok((run::code(status), self.bytes))
    }

    /// Kills the client, as closing the window does.
    pub fn kill(mut self) {
        let _gone = self.child.kill();
    }

    fn end_of_text(&self) -> String {
        let from = self.text.len().saturating_sub(SHOWN);
        self.text.chars().skip(from).collect()
    }

    /// Reads the data that arrives within a moment. Returns whether there may be more.
    fn read(&mut self) -> bool {
        // EIO: no process has the other side open.
        let Ok(piece) = self.ours.read(Duration::from_millis(200)) else { return false };
        self.bytes += piece.len();
        self.text += &String::from_utf8_lossy(&piece);
        true
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
