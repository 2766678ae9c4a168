//! An agent that knows one command: `cat`, which ends on request. It records the order of its
//! callers and all control messages. Websocket frames are encoded by hand.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};

use super::host::SOON;
use super::liar::{self, Preamble, Stream, whole};
use super::wire::{Message, accept_websocket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// An event reports it.
    Event { code: i64 },
    /// Sends no events, but answers queries.
    Asked { code: i64 },
    /// The agent dies: it closes all connections and no longer answers.
    Gone,
    /// The guest hangs once the command runs: connections stay open, and nothing is read or
    /// answered.
    Silent,
}

#[derive(Default)]
struct Seen {
    order: Vec<String>,
    body: Value,
    control: Vec<String>,
    input: Option<Vec<u8>>,
    ended: bool,
}

#[derive(Clone)]
pub(crate) struct Shell {
    seen: Arc<(Mutex<Seen>, Condvar)>,
    end: End,
    server: &'static str,
}

/// Interval of the checks for the end.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) const ID: &str = "5c0ffee0-0000-4000-8000-000000000001";

impl Shell {
    pub(crate) fn start(socket: &Path, share: &Path, server: &'static str, end: End) -> Self {
        let shell = Self { seen: Arc::default(), end, server };
        let ours = shell.clone();
        let act = move |message: &Message, stream| ours.serve(message, stream);
        liar::start(socket, share, Preamble::None, act);
        shell
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.0.lock().unwrap()
    }

    /// Returns the callers in order: paths, or names of sockets.
    pub(crate) fn order(&self) -> Vec<String> {
        self.seen().order.clone()
    }

    pub(crate) fn body(&self) -> Value {
        self.seen().body.clone()
    }

    pub(crate) fn control(&self) -> Vec<String> {
        self.seen().control.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen());
        self.seen.1.notify_all();
    }

    fn wait<T>(&self, mut look: impl FnMut(&mut Seen) -> Option<T>) -> Option<T> {
        let mut found = None;
        let is_missing = |seen: &mut Seen| {
            found = look(seen);
            found.is_none()
        };
        drop(self.seen.1.wait_timeout_while(self.seen(), SOON, is_missing).unwrap());
        found
    }

    fn serve(&self, message: &Message, mut stream: Stream) -> std::io::Result<()> {
        let target = message.first_line().split(' ').nth(1).unwrap().to_owned();
        let name = target.split_once("secret=").map_or(target.clone(), |(_, name)| name.to_owned());
        if self.seen().ended && self.end == End::Gone {
            return Ok(());
        }
        self.change(|seen| seen.order.push(name.clone()));
        if self.end == End::Silent && name.starts_with("/1.0/operations/") {
            park(&stream);
        }
        match name.as_str() {
            "/1.0" => {
                let extensions = ["container_exec_user_group_cwd"];
                let info = json!({"environment": {"server": self.server},
                    "api_extensions": extensions});
                sync(&mut stream, &info)
            }
            "/1.0/exec" => self.begin(&mut stream, message),
            "/1.0/events" => {
                accept_websocket(&mut stream, message)?;
                self.events_socket(stream)
            }
            "control" => self.control_socket(stream, message),
            "0" => self.input_socket(stream, message),
            "1" => self.output_socket(stream, message),
            "2" => {
                accept_websocket(&mut stream, message)?;
                frame(&mut stream, 1, b"")?;
                until_hang_up(&mut stream);
                Ok(())
            }
            _ => {
                let code = match self.end {
                    End::Asked { code } => self.wait(|seen| seen.ended.then_some(code)),
                    End::Event { .. } | End::Gone | End::Silent => None,
                };
                sync(&mut stream, &operation(code))
            }
        }
    }

    fn begin(&self, stream: &mut Stream, message: &Message) -> std::io::Result<()> {
        self.change(|seen| seen.body = message.json());
        let fds = match message.json()["interactive"] == true {
            true => json!({"control": "control", "0": "0"}),
            false => json!({"control": "control", "0": "0", "1": "1", "2": "2"}),
        };
        let mut started = operation(None);
        started["metadata"] = json!({ "fds": fds });
        let path = format!("/1.0/operations/{ID}");
        let body = json!({"type": "async", "status_code": 100, "operation": path, "error": "",
            "metadata": started});
        whole(stream, &format!("202 Accepted\r\nLocation: {path}"), &body.to_string())
    }

    /// Ends the command when the host closes the websocket, which it does after all output.
    fn control_socket(&self, mut stream: Stream, message: &Message) -> std::io::Result<()> {
        accept_websocket(&mut stream, message)?;
        if self.end == End::Silent {
            park(&stream);
        }
        while let Ok((opcode, payload)) = next_frame(&mut stream) {
            if opcode == 9 {
                frame(&mut stream, 10, &payload)?;
                continue;
            }
            let text = String::from_utf8_lossy(&payload).into_owned();
            let note = if opcode == 8 { "goodbye".to_owned() } else { text };
            self.change(|seen| seen.control.push(note));
            if opcode == 8 {
                break;
            }
        }
        self.change(|seen| seen.ended = true);
        Ok(())
    }

    /// Answers pings until the command ends.
    fn events_socket(&self, mut stream: Stream) -> std::io::Result<()> {
        if self.end == End::Silent {
            park(&stream);
        }
        while !self.seen().ended {
            stream.sock.set_read_timeout(Some(LOOK))?;
            // A ping without payload.
            if stream.read(&mut [0; 1]).is_ok() {
                stream.sock.set_read_timeout(None)?;
                stream.read_exact(&mut [0; 5])?;
                frame(&mut stream, 10, b"")?;
            }
        }
        if let End::Event { code } = self.end {
            let event = json!({"type": "operation", "metadata": operation(Some(code))});
            // First an event of another operation.
            frame(
                &mut stream,
                1,
                br#"{"type":"operation","metadata":{"id":"x","status_code":200}}"#,
            )?;
            frame(&mut stream, 1, event.to_string().as_bytes())?;
            until_hang_up(&mut stream);
        }
        Ok(())
    }

    fn input_socket(&self, mut stream: Stream, message: &Message) -> std::io::Result<()> {
        accept_websocket(&mut stream, message)?;
        let mut input = Vec::new();
        while let (2, payload) = next_frame(&mut stream)? {
            input.extend(payload);
        }
        self.change(|seen| seen.input = Some(input));
        until_hang_up(&mut stream);
        Ok(())
    }

    fn output_socket(&self, mut stream: Stream, message: &Message) -> std::io::Result<()> {
        accept_websocket(&mut stream, message)?;
        let input = self.wait(|seen| seen.input.clone()).unwrap_or_default();
        for piece in input.chunks(1000) {
            frame(&mut stream, 2, piece)?;
        }
        frame(&mut stream, 1, b"")?;
        until_hang_up(&mut stream);
        Ok(())
    }
}

fn operation(code: Option<i64>) -> Value {
    let (status, metadata) = match code {
        Some(code) => (200, json!({ "return": code })),
        None => (103, json!({})),
    };
    json!({"id": ID, "class": "websocket", "status_code": status, "err": "", "metadata": metadata})
}

fn sync(stream: &mut Stream, metadata: &Value) -> std::io::Result<()> {
    let body = json!({"type": "sync", "status_code": 200, "error": "", "metadata": metadata});
    whole(stream, "200 OK", &body.to_string())
}

/// Writes an unmasked frame, as servers do.
fn frame(stream: &mut Stream, opcode: u8, payload: &[u8]) -> std::io::Result<()> {
    let mut bytes = vec![0x80 | opcode];
    match u8::try_from(payload.len()) {
        Ok(short) if short < 126 => bytes.push(short),
        _ => {
            bytes.push(126);
            bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        }
    }
    bytes.extend(payload);
    stream.write_all(&bytes)?;
    stream.flush()
}

/// Reads a masked, unfragmented frame, as clients send them.
fn next_frame(stream: &mut Stream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut take = |count: usize| -> std::io::Result<VecDeque<u8>> {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes)?;
        Ok(bytes.into())
    };
    let head = take(2)?;
    assert!(head[0] & 0x80 != 0 && head[1] & 0x80 != 0, "{head:?}");
    let more = match head[1] & 0x7f {
        126 => take(2)?,
        127 => take(8)?,
        short => [short].into(),
    };
    let length = more.iter().fold(0, |length: usize, byte| length << 8 | usize::from(*byte));
    let mask = take(4)?;
    let payload = take(length)?;
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    Ok((head[0] & 0x0f, payload.collect()))
}

/// Keeps a connection open without using it.
fn park(_stream: &Stream) -> ! {
    loop {
        std::thread::park();
    }
}

fn until_hang_up(stream: &mut Stream) {
    while stream.read(&mut [0; 512]).is_ok_and(|count| count > 0) {}
}
