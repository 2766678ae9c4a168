//! An agent that knows one command: `cat`, which ends on request. It records the order of its
//! callers and all control messages.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mote_client::Message;
use serde_json::{Value, json};
use tungstenite::protocol::Role;
use tungstenite::{Message as Piece, WebSocket};

use super::agent::{self, Preamble, Stream, accept_websocket, greet, operation, started, sync};
use super::host::{Host, SOON};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// An event reports the end of the command.
    Event { code: i64 },
    /// No event reports the end, but queries of the operation do.
    Asked { code: i64 },
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
    seen: Arc<Mutex<Seen>>,
    end: End,
    server: &'static str,
}

const LOOK: Duration = Duration::from_millis(20);

impl Shell {
    pub(crate) fn of(host: &Host, server: &'static str, end: End) -> Self {
        let shell = Self { seen: Arc::default(), end, server };
        let ours = shell.clone();
        let act = move |message: &Message, stream| ours.serve(message, stream);
        agent::start(&host.path("vm1.p.listen_8443"), &host.share("vm1"), Preamble::None, act);
        shell
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(crate) fn order(&self) -> Vec<String> {
        self.seen().order.clone()
    }

    pub(crate) fn body(&self) -> Value {
        self.seen().body.clone()
    }

    pub(crate) fn control(&self) -> Vec<String> {
        self.seen().control.clone()
    }

    fn wait<T>(&self, mut look: impl FnMut(&mut Seen) -> Option<T>) -> Option<T> {
        mote_machine::found(SOON, || look(&mut self.seen()))
    }

    fn serve(&self, message: &Message, mut stream: Stream) -> std::io::Result<()> {
        let target = &message.target;
        let name = target.split_once("secret=").map_or(target.as_str(), |(_, name)| name);
        self.seen().order.push(name.to_owned());
        if self.end == End::Silent && name.starts_with("/1.0/operations/") {
            park(&stream);
        }
        match name {
            "/1.0" => greet(&mut stream, self.server),
            "/1.0/exec" => self.begin(&mut stream, message),
            "/1.0/events" => self.events_socket(opened(stream, message)?),
            "control" => self.control_socket(opened(stream, message)?),
            "0" => self.input_socket(opened(stream, message)?),
            "1" => self.output_socket(opened(stream, message)?),
            "2" => end(opened(stream, message)?),
            _ => {
                let code = match self.end {
                    End::Asked { code } => self.wait(|seen| seen.ended.then_some(code)),
                    End::Event { .. } | End::Silent => None,
                };
                sync(&mut stream, &operation(code))
            }
        }
    }

    fn begin(&self, stream: &mut Stream, message: &Message) -> std::io::Result<()> {
        let body = message.json().unwrap();
        let mut fds = json!({"control": "control", "0": "0"});
        if body["interactive"] != true {
            fds["1"] = json!("1");
            fds["2"] = json!("2");
        }
        self.seen().body = body;
        started(stream, &fds)
    }

    /// Ends the command when the host closes the websocket, which it does after all output.
    fn control_socket(&self, mut socket: WebSocket<Stream>) -> std::io::Result<()> {
        if self.end == End::Silent {
            park(socket.get_ref());
        }
        while let Ok(piece) = socket.read() {
            match piece {
                Piece::Text(text) => self.seen().control.push(text.to_string()),
                Piece::Close(_) => self.seen().control.push("goodbye".to_owned()),
                Piece::Binary(_) | Piece::Ping(_) | Piece::Pong(_) | Piece::Frame(_) => {}
            }
        }
        self.seen().ended = true;
        Ok(())
    }

    /// Answers pings until the command ends.
    fn events_socket(&self, mut socket: WebSocket<Stream>) -> std::io::Result<()> {
        if self.end == End::Silent {
            park(socket.get_ref());
        }
        socket.get_ref().sock.set_read_timeout(Some(LOOK))?;
        while !self.seen().ended {
            let _none = socket.read();
        }
        socket.get_ref().sock.set_read_timeout(None)?;
        if let End::Event { code } = self.end {
            let of = |operation: Value| json!({"type": "operation", "metadata": operation});
            // First send an event of another operation.
            for operation in [json!({"id": "x", "status_code": 200}), operation(Some(code))] {
                send(&mut socket, Piece::text(of(operation).to_string()))?;
            }
            until_hang_up(&mut socket);
        }
        Ok(())
    }

    fn input_socket(&self, mut socket: WebSocket<Stream>) -> std::io::Result<()> {
        let mut input = Vec::new();
        while let Ok(Piece::Binary(piece)) = socket.read() {
            input.extend(piece);
        }
        self.seen().input = Some(input);
        until_hang_up(&mut socket);
        Ok(())
    }

    fn output_socket(&self, mut socket: WebSocket<Stream>) -> std::io::Result<()> {
        let input = self.wait(|seen| seen.input.clone()).unwrap_or_default();
        for piece in input.chunks(1000) {
            send(&mut socket, Piece::binary(piece.to_vec()))?;
        }
        end(socket)
    }
}

fn opened(mut stream: Stream, request: &Message) -> std::io::Result<WebSocket<Stream>> {
    accept_websocket(&mut stream, request)?;
    Ok(WebSocket::from_raw_socket(stream, Role::Server, None))
}

fn send(socket: &mut WebSocket<Stream>, piece: Piece) -> std::io::Result<()> {
    socket.send(piece).map_err(std::io::Error::other)
}

fn end(mut socket: WebSocket<Stream>) -> std::io::Result<()> {
    send(&mut socket, Piece::text(""))?;
    until_hang_up(&mut socket);
    Ok(())
}

fn park(_stream: &Stream) -> ! {
    loop {
        std::thread::park();
    }
}

fn until_hang_up(socket: &mut WebSocket<Stream>) {
    while socket.read().is_ok() {}
}
