//! An agent: TLS with the certificates of the share, and the part of its API that hosts call.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mote_client::net::http::Message;
use serde_json::Value;

use super::host::{Host, SOON, wait};
use super::liar::{self, Preamble, Stream, greet, whole};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Answers 200.
    Well,
    /// Answers 500 to PUT.
    Refuses,
    /// Answers correctly, but endlessly and one byte at a time.
    Drips,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) message: Message,
    /// The server name in the handshake.
    pub(crate) sni: Option<String>,
}

impl Call {
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.message.method, self.message.target)
    }

    pub(crate) fn json(&self) -> Value {
        self.message.json().unwrap()
    }
}

pub(crate) struct Agent {
    calls: Arc<Mutex<Vec<Call>>>,
    mood: Arc<Mutex<Mood>>,
}

impl Agent {
    pub(crate) fn of(host: &Host, server: &'static str) -> Self {
        let socket = host.path("vm1.p.listen_8443");
        Self::start(&socket, &host.share("vm1"), server, Preamble::None)
    }

    /// Starts an agent at `socket` with the files of `share`. `server` is its name in `GET /1.0`.
    pub(crate) fn start(
        socket: &Path,
        share: &Path,
        server: &'static str,
        preamble: Preamble,
    ) -> Self {
        let agent = Self { calls: Arc::default(), mood: Arc::new(Mutex::new(Mood::Well)) };
        let (calls, mood) = (agent.calls.clone(), agent.mood.clone());
        liar::start(socket, share, preamble, move |message, stream| {
            let mood = *mood.lock().unwrap();
            serve(message, stream, mood, server, &calls)
        });
        agent
    }

    pub(crate) fn mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.calls().iter().map(Call::line).collect()
    }

    /// Waits for the `nth` call that begins with `line`, counted from one.
    pub(crate) fn wait_for(&self, line: &str, nth: usize) -> Call {
        wait(line, SOON, || {
            self.calls().into_iter().filter(|call| call.line().starts_with(line)).nth(nth - 1)
        })
    }
}

fn serve(
    message: &Message,
    mut stream: Stream,
    mood: Mood,
    server: &str,
    calls: &Mutex<Vec<Call>>,
) -> std::io::Result<()> {
    assert!(message.header("content-length").is_some(), "{message:?}");
    let sni = stream.conn.server_name().map(str::to_owned);
    calls.lock().unwrap().push(Call { message: message.clone(), sni });
    if mood == Mood::Drips {
        stream.write_all(b"HTTP/1.1 200 OK\r\nX-Drops: ")?;
        loop {
            stream.write_all(b"x")?;
            stream.flush()?;
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    if message.method == "PUT" && mood == Mood::Refuses {
        let body = r#"{"type":"error","error":"no way back","error_code":500}"#;
        return whole(&mut stream, "500 Internal Server Error", body);
    }
    greet(&mut stream, server)
}
