//! QEMU's monitor: commands, answers, and events between them. Other threads may send orders over a
//! copy of the connection; their answers are ignored.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::daemon::vm::{Monitor, News, Orders};
use mote_client::common::limits::MONITOR_DOCUMENT;

/// Limit for QEMU's answer, which is late on a busy machine.
const ANSWER: Duration = Duration::from_secs(5);
/// Limit for the remaining data of a closed monitor, which has arrived already.
const REST: Duration = Duration::from_millis(100);

pub(super) struct Qmp {
    reader: BufReader<UnixStream>,
    writer: Arc<Orders>,
    line: Vec<u8>,
    /// Number of commands so far, which identifies the answers.
    commands: u64,
    /// Events that arrived before an answer.
    news: Vec<News>,
    /// Whether any event arrived, known or not.
    is_woken: bool,
}

impl Qmp {
    /// Connects. Otherwise returns why not: the monitor serves one client, and others get no
    /// greeting.
    pub(super) fn connect(path: &Path) -> Result<Self, Monitor> {
        let connected = UnixStream::connect(path).map_err(|_| Monitor::Silent)?;
        Self::greeted(connected).map_err(|_| Monitor::Taken)
    }

    fn greeted(stream: UnixStream) -> Result<Self> {
        stream.set_write_timeout(Some(ANSWER))?;
        let reader = BufReader::new(stream.try_clone()?);
        let writer = Arc::new(Orders::new(stream));
        let (line, news) = (Vec::new(), Vec::new());
        let mut qmp = Self { reader, writer, line, commands: 0, news, is_woken: false };
        qmp.next(ANSWER)?.context("no greeting")?;
        qmp.call("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    pub(super) fn orders(&self) -> Arc<Orders> {
        self.writer.clone()
    }

    /// Returns the answer to a command, a return or an error.
    pub(super) fn call(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.commands += 1;
        self.writer.write(&json!({"execute": command, "arguments": arguments,
            "id": self.commands}))?;
        let end = Instant::now() + ANSWER;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let answer = self.next(left)?.context("no answer")?;
            if answer["id"] == self.commands {
                return Ok(answer);
            }
            self.take(&answer);
        }
    }

    /// Returns what a command returned; `None` if QEMU does not know it.
    pub(super) fn ask(&mut self, command: &str) -> Result<Option<Value>> {
        let mut answer = self.call(command, &json!({}))?;
        Ok(answer.get_mut("return").map(Value::take))
    }

    /// Keeps an event. Answers to orders are ignored.
    fn take(&mut self, document: &Value) {
        // More than a burst of QEMU's contains.
        const MOST: usize = 64;
        self.is_woken |= document.get("event").is_some();
        if self.news.len() < MOST {
            self.news.extend(News::of(document));
        }
    }

    /// Waits for an event or the end of the time, and returns the events.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Vec<News>> {
        let end = Instant::now() + limit;
        while !self.is_woken {
            let left = end.saturating_duration_since(Instant::now());
            let Some(document) = self.next(left)? else { break };
            self.take(&document);
        }
        self.is_woken = false;
        Ok(std::mem::take(&mut self.news))
    }

    /// Returns the remaining events of a closed monitor. They often show why an answer never came.
    pub(super) fn rest(&mut self) -> Vec<News> {
        let end = Instant::now() + REST;
        while let Ok(Some(document)) = self.next(end.saturating_duration_since(Instant::now())) {
            self.take(&document);
        }
        std::mem::take(&mut self.news)
    }

    /// Returns the next document, or `None` if the time is over.
    fn next(&mut self, limit: Duration) -> Result<Option<Value>> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.reader.get_ref().set_read_timeout(Some(left))?;
            let room = MONITOR_DOCUMENT.saturating_sub(u64::try_from(self.line.len())?);
            match (&mut self.reader).take(room).read_until(b'\n', &mut self.line) {
                Ok(0) if room == 0 => bail!("a document is too long"),
                Ok(0) => bail!("closed"),
                Ok(_) if self.line.ends_with(b"\n") => {
                    let line = std::mem::take(&mut self.line);
                    return serde_json::from_slice(&line).map(Some).context("not JSON");
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_the_reason_of_qemus_end_instead_of_an_answer() {
        let (line, mut qemu) = UnixStream::pair().unwrap();
        let shutdown = json!({"event": "SHUTDOWN", "data": {"reason": "guest-reset"}});
        let documents = [json!({"QMP": {}}), json!({"return": {}, "id": 1})];
        for document in documents.into_iter().chain([json!({"event": "STOP"}), shutdown]) {
            write!(qemu, "{document}\r\n").unwrap();
        }
        let mut qmp = Qmp::greeted(line).unwrap();
        drop(qemu);
        qmp.ask("query-status").unwrap_err();
        assert_eq!(qmp.rest(), [News::Paused, News::ShutDown("guest-reset".into())]);
        assert_eq!(qmp.rest(), []);
    }
}
