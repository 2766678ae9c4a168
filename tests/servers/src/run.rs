//! Programs with a time limit: their output and exit codes. Also programs on a pseudo-terminal.

use mote_machine::{Pty, found, within};

use crate::prelude::*;

const SHOWN: usize = 400;

#[derive(Clone, Debug)]
pub struct Output {
    /// The program's exit code, or 128 plus the signal that killed it.
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Output {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Returns both outputs, trimmed. Replaces binary output with its size, because terminals and
    /// pages show the text.
    pub fn said(&self) -> String {
        let out = match str::from_utf8(&self.out) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("({} bytes that are no text) ", self.out.len()),
        };
        format!("{out}{}", self.err).trim().to_owned()
    }
}

pub struct Run {
    command: Command,
    words: String,
    input: Vec<u8>,
    limit: Duration,
}

impl Run {
    /// Returns a program with arguments and a limit of one minute.
    pub fn new(words: &[&str]) -> Self {
        let mut command = Command::new(words.first().copied().unwrap_or_default());
        command.args(words.iter().skip(1));
        Self { command, words: words.join(" "), input: Vec::new(), limit: Duration::from_secs(60) }
    }

    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub fn run(mut self) -> Try<Output> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.words);
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let mut child = within(&mut self.command, self.limit).map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // Ignore errors: the program may end before it has read everything.
            thread::spawn(move || stdin.write_all(&self.input));
        }
        let output = child.wait_with_output().map_err(failed)?;
        if begun.elapsed() > self.limit {
            return Err(format!("`{}` did not end in {:?}", self.words, self.limit));
        }
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Output { code: code(output.status), out: output.stdout, err })
    }

    pub fn code(self, wanted: i32) -> Try<Output> {
        let words = self.words.clone();
        let output = self.run()?;
        if output.code == wanted {
            return Ok(output);
        }
        let said = output.said();
        let from = said.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
        Err(format!("`{words}` ended with {}, not {wanted}: {}", output.code, &said[from..]))
    }

    pub fn text(self) -> Try<String> {
        Ok(self.code(0)?.text())
    }

    pub fn start(self) -> Try<Background> {
        self.begin(Stdio::null())
    }

    /// Starts it with input and output in pipes, for programs that answer line by line.
    pub fn talk(self) -> Try<Background> {
        self.begin(Stdio::piped())
    }

    fn begin(mut self, input: Stdio) -> Try<Background> {
        self.command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = self.command.spawn().map_err(|error| format!("{}: {error}", self.words))?;
        Ok(Background(child))
    }
}

pub struct Background(pub Child);

impl Background {
    /// Returns the output of a program that another program ends within the limit.
    pub fn end(mut self, limit: Duration) -> Try<Output> {
        let mut stdout = self.0.stdout.take().ok_or("no output")?;
        let out = thread::spawn(move || {
            let mut bytes = Vec::new();
            // Keep the data that precedes an error.
            let _count = stdout.read_to_end(&mut bytes);
            bytes
        });
        let status = wait(&mut self.0, limit).ok_or("a program in the background did not end")?;
        let out = out.join().unwrap_or_default();
        Ok(Output { code: code(status), out, err: String::new() })
    }

    pub fn line(&mut self) -> Try<String> {
        let stdout = self.0.stdout.as_mut().ok_or("no output")?;
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).map_err(|error| error.to_string())? == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    pub fn answer(&mut self) -> Try<String> {
        let stdin = self.0.stdin.as_mut().ok_or("no input")?;
        stdin.write_all(b"\n").map_err(|error| error.to_string())?;
        self.line()
    }

    pub fn signal(&self, signal: &str) -> Try {
        Run::new(&["kill", signal, &self.0.id().to_string()]).code(0).map(drop)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    found(limit, || child.try_wait().ok().flatten())
}

/// Returns an exit code as shells show it.
pub fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

pub struct Terminal {
    ours: Pty,
    child: Child,
    limit: Duration,
}

impl Terminal {
    /// Starts a program on a terminal of this size. The limit applies to each wait.
    pub fn start(words: &[&str], columns: u16, rows: u16, limit: Duration) -> Try<Self> {
        let failed = |error: std::io::Error| format!("a terminal: {error}");
        let (ours, theirs) = Pty::open(columns, rows).map_err(failed)?;
        let side = || theirs.try_clone().map(Stdio::from).map_err(failed);
        // The program gets its own session with this terminal, so that signals of keys and resizes
        // reach it.
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(words).env("TERM", "xterm");
        command.stdin(side()?).stdout(side()?).stderr(side()?);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { ours, child, limit })
    }

    pub fn resize(&self, columns: u16, rows: u16) -> Try {
        self.ours.resize(columns, rows).map_err(|error| format!("size of a terminal: {error}"))
    }

    pub fn say(&self, text: &str) -> Try {
        self.ours.say(text).map_err(|error| format!("typing: {error}"))
    }

    pub fn until(&mut self, wanted: &str) -> Try<String> {
        self.ours.until(wanted, self.limit).map_err(|error| error.to_string())
    }

    /// Reads until the program ends; returns its exit code and the number of bytes that it wrote.
    pub fn end(mut self) -> Try<(i32, usize)> {
        let begun = Instant::now();
        while begun.elapsed() < self.limit && self.ours.read(Duration::from_millis(200)).is_ok() {}
        let status = wait(&mut self.child, self.limit)
            .ok_or_else(|| format!("the client did not end: {:?}", self.ours.end_of_text()))?;
        Ok((code(status), self.ours.bytes))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
