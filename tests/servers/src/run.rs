//! Programs with a time limit: their output and exit codes.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);
/// Limit for output that is still in flight when the program has ended.
const DRAIN: Duration = Duration::from_secs(5);
/// Characters from the end of a program's output that an error shows.
const SHOWN: usize = 400;

#[derive(Clone, Debug)]
pub struct Output {
    /// Its exit code, or 128 plus the signal.
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Output {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Returns both outputs, trimmed. Of binary data only the size, because terminals and pages
    /// show it.
    pub fn said(&self) -> String {
        let out = match str::from_utf8(&self.out) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("({} bytes that are no text) ", self.out.len()),
        };
        format!("{out}{}", self.err).trim().to_owned()
    }
}

#[derive(Debug)]
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

    pub fn run(mut self) -> Result<Output, String> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|error| format!("{}: {error}", self.words))?;
        let out = collect(child.stdout.take());
        let err = collect(child.stderr.take());
        if let Some(mut stdin) = child.stdin.take() {
            let bytes = std::mem::take(&mut self.input);
            // A program that ends before it has read everything is not our error.
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        let Some(status) = wait(&mut child, self.limit) else {
            let _gone = child.kill();
            let _reaped = child.wait();
            return Err(format!("`{}` did not end in {:?}", self.words, self.limit));
        };
        let out = out.recv_timeout(DRAIN).unwrap_or_default();
        let err =
            String::from_utf8_lossy(&err.recv_timeout(DRAIN).unwrap_or_default()).into_owned();
        Ok(Output { code: code(status), out, err })
    }

    /// Runs it and requires an exit code.
    pub fn code(self, wanted: i32) -> Result<Output, String> {
        let words = self.words.clone();
        let output = self.run()?;
        if output.code == wanted {
            return Ok(output);
        }
        let said = output.said();
        let from = said.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
        Err(format!("`{words}` ended with {}, not {wanted}: {}", output.code, &said[from..]))
    }

    pub fn text(self) -> Result<String, String> {
        Ok(self.code(0)?.text())
    }

    /// Starts it with its output in a pipe.
    pub fn start(self) -> Result<Background, String> {
        self.begin(Stdio::null())
    }

    /// Starts it with input and output in pipes, for programs that answer line by line.
    pub fn talk(self) -> Result<Background, String> {
        self.begin(Stdio::piped())
    }

    fn begin(mut self, input: Stdio) -> Result<Background, String> {
        self.command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = self.command.spawn().map_err(|error| format!("{}: {error}", self.words))?;
        Ok(Background(child))
    }
}

/// A program in the background, killed when dropped.
#[derive(Debug)]
pub struct Background(pub Child);

impl Background {
    /// Returns the output once another program has ended it.
    pub fn end(mut self, limit: Duration) -> Result<Output, String> {
        let out = collect(self.0.stdout.take());
        let status = wait(&mut self.0, limit).ok_or("a program in the background did not end")?;
        let out = out.recv_timeout(DRAIN).unwrap_or_default();
        Ok(Output { code: code(status), out, err: String::new() })
    }

    pub fn line(&mut self) -> Result<String, String> {
        let stdout = self.0.stdout.as_mut().ok_or("no output")?;
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).map_err(|error| error.to_string())? == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    pub fn answer(&mut self) -> Result<String, String> {
        let stdin = self.0.stdin.as_mut().ok_or("no input")?;
        stdin.write_all(b"\n").map_err(|error| error.to_string())?;
        self.line()
    }

    /// Sends a signal, such as `-INT`.
    pub fn signal(&self, signal: &str) -> Result<(), String> {
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
    let begun = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if begun.elapsed() > limit {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns an exit code as shells show it.
pub fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Reads a pipe to its end in a thread.
fn collect(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // Data before an error is kept.
            let _count = pipe.read_to_end(&mut bytes);
        }
        send.send(bytes)
    });
    receive
}
