//! The instance under test and its server, as checks use them.

use crate::prelude::*;
use crate::run::Run;

/// What a check saw, or why it fails.
pub type Seen = Try<String>;

pub const VM: &str = "vm1";
pub const BRIDGE: &str = "br-checks";
/// Limit for a program, before `slow`: a start takes 15 s. With `--slow 2` and the outer VM's
/// slowed clock it is still shorter than `outer::SILENCE`.
const PROGRAM: Duration = Duration::from_secs(100);
/// Limit for a program on a terminal, before `slow`.
const TERMINAL: Duration = Duration::from_secs(40);
/// Polling interval for the agent of a booting instance, before `slow`.
pub const BOOTING: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(200);

pub const BIG: usize = 4;

#[derive(Clone, Copy, Debug, Args)]
pub struct World {
    pub server: Server,
    pub agent: Agent,
    /// Factor for time limits: nested emulation is slow.
    pub slow: u32,
}

impl World {
    pub fn limit(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds) * self.slow
    }

    pub fn run(&self, words: &[&str]) -> Run {
        Run::new(words).within(PROGRAM * self.slow)
    }

    pub fn cli(&self, words: &[&str]) -> Run {
        self.run(&[&[self.server.cli()], words].concat())
    }

    pub fn ok(&self, words: &[&str]) -> Try<String> {
        self.cli(words).text()
    }

    pub fn exec(&self, words: &[&str]) -> Run {
        self.cli(&[&["exec", VM, "-T", "--"], words].concat())
    }

    pub fn sh(&self, script: &str) -> Try<String> {
        self.exec(&["sh", "-c", script]).text()
    }

    /// Sets a key of the instance, calls `look`, and always restores the key.
    pub fn with_key<T>(
        &self,
        key: &str,
        value: &str,
        was: Option<&str>,
        look: impl FnOnce() -> Try<T>,
    ) -> Try<T> {
        let set = |value| self.ok(&["config", "set", VM, key, value]);
        set(value)?;
        let seen = look();
        was.map_or_else(|| self.ok(&["config", "unset", VM, key]), set)?;
        seen
    }

    pub fn terminal(&self, words: &[&str]) -> Try<Terminal> {
        let words = [&[self.server.cli()], words].concat();
        Terminal::start(&words, 97, 31, TERMINAL * self.slow)
    }

    pub fn exec_on_terminal(&self, words: &[&str]) -> Try<Terminal> {
        self.terminal(&[&["exec", VM, "-t", "--"], words].concat())
    }

    /// Queries the server's API directly: in emulation the command line takes seconds to start, and
    /// repeated starts would slow the instance down.
    pub fn query(&self, path: &str) -> Try<Value> {
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let mut stream = UnixStream::connect(self.server.socket()).map_err(failed)?;
        stream.set_read_timeout(Some(PROGRAM * self.slow)).map_err(failed)?;
        // HTTP 1.0: the body ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: server\r\n\r\n").map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("half an answer")?;
        let mut body: Value =
            serde_json::from_str(body).map_err(|error| format!("{path}: {error}"))?;
        match body["error_code"].as_i64() {
            Some(0) | None => Ok(body["metadata"].take()),
            Some(_) => Err(format!("{path}: {}", body["error"])),
        }
    }

    pub fn curl(&self, words: &[&str]) -> Run {
        let with = ["curl", "-s", "-i", "--unix-socket", self.server.socket()];
        self.run(&[&with, words].concat())
    }

    pub fn status(&self) -> Try<String> {
        let instance = self.query(&format!("/1.0/instances/{VM}"))?;
        Ok(instance["status"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns whether the server sees an agent: only an agent reports processes. A query string
    /// may follow the instance's name.
    pub fn sees_agent(&self, instance: &str) -> Try<bool> {
        let (name, query) = instance.split_once('?').unwrap_or((instance, ""));
        let state = self.query(&format!("/1.0/instances/{name}/state?{query}"))?;
        Ok(state["processes"].as_i64().is_some_and(|count| count > 0))
    }

    pub fn agent_of(&self, instance: &str) -> Try<f64> {
        self.until_each(BOOTING * self.slow, "an agent", 240, || self.sees_agent(instance))
    }

    pub fn until(&self, what: &str, seconds: u64, look: impl FnMut() -> Try<bool>) -> Try<f64> {
        self.until_each(AGAIN * self.slow, what, seconds, look)
    }

    /// Like `until`, with a given interval: a long one while an instance boots, because polling
    /// slows it down.
    pub fn until_each(
        &self,
        pause: Duration,
        what: &str,
        seconds: u64,
        mut look: impl FnMut() -> Try<bool>,
    ) -> Try<f64> {
        let begun = Instant::now();
        loop {
            let seen = look();
            if seen == Ok(true) {
                return Ok(round(begun.elapsed()));
            }
            if begun.elapsed() > self.limit(seconds) {
                let last = seen.err().map_or_else(String::new, |error| format!("; last: {error}"));
                return Err(format!("{what}: not within {:?}{last}", self.limit(seconds)));
            }
            thread::sleep(pause);
        }
    }
}

pub fn round(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

pub fn checksum(bytes: &[u8]) -> Try<String> {
    first_word(&Run::new(&["sha256sum"]).input(bytes).code(0)?)
}

pub fn first_word(output: &Output) -> Try<String> {
    let text = output.text();
    text.split_whitespace().next().map(str::to_owned).ok_or_else(|| "nothing printed".to_owned())
}

pub fn put(path: &str, content: &[u8]) -> Try {
    fs::write(path, content).map_err(|error| format!("{path}: {error}"))
}

pub fn read(path: &str) -> Try<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{path}: {error}"))
}
