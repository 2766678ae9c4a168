//! A program on a pseudo-terminal.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mote_machine::Pty;

use crate::run;

/// A program on a terminal; killed when dropped.
#[derive(Debug)]
pub struct Terminal {
    ours: Pty,
    child: Child,
    limit: Duration,
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
        Ok(Self { ours, child, limit })
    }

    pub fn resize(&self, columns: u16, rows: u16) -> Result<(), String> {
        self.ours.resize(columns, rows).map_err(|error| format!("size of a terminal: {error}"))
    }

    pub fn say(&self, text: &str) -> Result<(), String> {
        self.ours.say(text).map_err(|error| format!("typing: {error}"))
    }

    pub fn until(&mut self, wanted: &str) -> Result<String, String> {
        self.ours.until(wanted, self.limit).map_err(|error| error.to_string())
    }

    /// Reads until the program ends, and returns its exit code and the number of bytes that it
    /// wrote.
    pub fn end(mut self) -> Result<(i32, usize), String> {
        let begun = Instant::now();
        while begun.elapsed() < self.limit && self.ours.read(Duration::from_millis(200)).is_ok() {}
        let status = run::wait(&mut self.child, self.limit)
            .ok_or_else(|| format!("the client did not end: {:?}", self.ours.end_of_text()))?;
        Ok((run::code(status), self.ours.bytes))
    }

    /// Kills the client, as closing the window does.
    pub fn kill(mut self) {
        let _gone = self.child.kill();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
