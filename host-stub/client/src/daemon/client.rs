//! Calls to the daemon over its control socket.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use crate::common::limits;
use crate::common::printable;
use crate::common::shell::quoted;
use crate::net::http::{read_answer, write_request};
use crate::net::stream::{Limit, Timed};

/// Limit for the daemon's answer, which may itself call the agent.
const ASK: Duration = Duration::from_secs(20);
/// How long to wait for a daemon that was just started in the background, and the interval of the
/// attempts.
const ARRIVAL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(20));

pub fn path(root: &Path) -> PathBuf {
    root.join("control.sock")
}

pub fn is_running(root: &Path) -> bool {
    UnixStream::connect(path(root)).is_ok()
}

fn none_runs(root: &Path) -> anyhow::Error {
    let (root, word) = (root.display(), quoted(&root.display().to_string()));
    anyhow!("no daemon is running in {root}; mote-host --dir {word} daemon starts one")
}

/// Connects to the daemon, and waits for one that is about to listen.
fn arrived<T, E>(root: &Path, mut connect: impl FnMut() -> Result<T, E>) -> Result<T> {
    let (limit, pause) = ARRIVAL;
    let begun = Instant::now();
    loop {
        match connect() {
            Ok(stream) => return Ok(stream),
            Err(_) if root.exists() && begun.elapsed() < limit => std::thread::sleep(pause),
            Err(_) => return Err(none_runs(root)),
        }
    }
}

pub fn ask(root: &Path, method: &str, target: &str, body: &Value) -> Result<Value> {
    let limit = Limit::within(ASK);
    let mut stream = arrived(root, || Timed::connect(&path(root), limit))?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    write_request(&mut stream, method, target, body.as_bytes())?;
    let answer = read_answer(&mut stream, limits::CONTROL)?;
    let value = answer.json()?;
    if answer.status != 200 {
        bail!("{}", value["error"].as_str().unwrap_or("refused"));
    }
    Ok(value)
}

/// Prints events until the daemon ends.
pub fn print_events(root: &Path, only: Option<&str>) -> Result<()> {
    let mut stream = arrived(root, || UnixStream::connect(path(root)))?;
    let target = only.map_or("/1.0/events".to_owned(), |only| format!("/1.0/events/{only}"));
    write_request(&mut stream, "GET", &target, b"")?;
    let mut text = String::new();
    let mut reader = std::io::BufReader::new(stream);
    let mut in_body = false;
    while std::io::BufRead::read_line(&mut reader, &mut text)? > 0 {
        if in_body {
            printable::print_exact(text.as_bytes())?;
            std::io::stdout().flush()?;
        }
        in_body |= text == "\r\n";
        text.clear();
    }
    Ok(())
}
