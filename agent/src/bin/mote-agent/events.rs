//! `/1.0/events`: what the host posts and what becomes of operations, handed to every listener, as
//! a stream of lines or as a websocket (P§4.3). A slow listener is dropped with a log line and never
//! slows the others.
//!
//! Guests get what the devlxd API promises, config and device; the real agents also show them the
//! host's operations, with the secrets of every exec (P§9.9).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::FutureExt;
use mote_agent::flavour::Flavour;
use mote_agent::http::head::Request;
use mote_agent::http::target;
use mote_agent::ws::Opcode;

use crate::agent::Agent;
use crate::clock::{self, sleep};
use crate::exchange::{Answer, Reply};
use crate::log;
use crate::signal::Signal;
use crate::stream::Stream;
use crate::upgrade::Upgrade;
use crate::websocket::{Inbox, Received, WebSocket, upgrade};

/// Listeners of one audience at once: each `lxc exec` has one. Over it: 503.
const LISTENERS: usize = 1024;
/// Events held for one listener (they are shared, not copied). Over it: that listener is dropped.
const QUEUED: usize = 512;
/// Between pings to a websocket (P§4.3).
const PING: Duration = Duration::from_secs(10);
/// Pings that may go unanswered (P§4.3).
const MISSED: u32 = 2;

/// All listeners.
#[derive(Default)]
pub(crate) struct Events {
    listeners: RefCell<Vec<Rc<Listener>>>,
}

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The host: everything.
    Host,
    /// Applications in the guest.
    Guest,
}

impl Audience {
    fn may_hear(self, kind: &str) -> bool {
        self == Self::Host || kind == "config" || kind == "device"
    }
}

/// One listener's queue.
pub(crate) struct Listener {
    audience: Audience,
    /// Comma-separated; empty is all.
    types: String,
    queue: RefCell<VecDeque<Rc<str>>>,
    overrun: Cell<bool>,
    signal: Signal,
}

impl Events {
    /// Hands an event (JSON) of a type to whoever wants it.
    pub(crate) fn publish(&self, kind: &str, event: &str) {
        let event: Rc<str> = event.into();
        for listener in self.listeners.borrow().iter() {
            let wanted =
                listener.types.is_empty() || listener.types.split(',').any(|word| word == kind);
            if !wanted || !listener.audience.may_hear(kind) {
                continue;
            }
            let mut queue = listener.queue.borrow_mut();
            if queue.len() >= QUEUED {
                listener.overrun.set(true);
            } else {
                queue.push_back(event.clone());
            }
            listener.signal.raise();
        }
    }
}

/// Makes a listener of whoever asks. It hears what happens from now on.
pub(crate) fn listen(agent: &Rc<Agent>, request: &Request<'_>, audience: Audience) -> Answer {
    let accept = match upgrade(request) {
        Ok(accept) => accept,
        Err(why) => return Answer::Reply(Reply::text(400, why)),
    };
    let mut listeners = agent.events.listeners.borrow_mut();
    if listeners.iter().filter(|other| other.audience == audience).count() >= LISTENERS {
        return Answer::Reply(Reply::text(503, "Too many event listeners"));
    }
    let types = target::query(request.query, "type").unwrap_or_default();
    let listener = Rc::new(Listener {
        audience,
        // Go's clients encode the comma.
        types: types.replace("%2C", ",").replace("%2c", ","),
        queue: RefCell::default(),
        overrun: Cell::new(false),
        signal: Signal::default(),
    });
    listeners.push(listener.clone());
    let listening = Listening { agent: agent.clone(), listener, accept };
    Answer::Upgrade(Upgrade::new(|stream| listening.serve(stream)))
}

/// A listener and its place on the list, which it leaves however serving it ends.
struct Listening {
    agent: Rc<Agent>,
    listener: Rc<Listener>,
    accept: Option<String>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = self.agent.events.listeners.borrow_mut();
        listeners.retain(|other| !Rc::ptr_eq(other, &self.listener));
    }
}

impl Listening {
    /// Serves it until it leaves or falls behind.
    async fn serve(self, stream: Stream) {
        let listener = &self.listener;
        let result = match &self.accept {
            Some(accept) => {
                let payload = match self.agent.flavour {
                    Flavour::Incus => &b"keepalive"[..],
                    Flavour::Lxd | Flavour::LxdOld => &[],
                };
                listener.websocket(stream, accept, payload).await
            }
            None => listener.lines(stream).await,
        };
        if listener.overrun.get() {
            log::warn(format_args!("an event listener was too slow and is dropped"));
        } else if let Err(error) = result {
            log::debug(format_args!("an event listener is gone: {error}"));
        }
    }
}

impl Listener {
    /// The next event; `None` once the listener fell behind.
    async fn next(&self) -> Option<Rc<str>> {
        let next = || match self.overrun.get() {
            true => Some(None),
            false => self.queue.borrow_mut().pop_front().map(Some),
        };
        self.signal.until(next).await
    }

    /// One JSON document a line, for as long as the client stays.
    async fn lines(&self, stream: Stream) -> std::io::Result<()> {
        // No length: the stream ends with the connection. The Go agents write bare LF here.
        let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\
                     X-Content-Type-Options: nosniff\r\n\r\n";
        stream.write_all(head).await?;
        let write = async {
            while let Some(event) = self.next().await {
                let mut line = Vec::with_capacity(event.len() + 1);
                line.extend_from_slice(event.as_bytes());
                line.push(b'\n');
                stream.write_all(&line).await?;
            }
            Ok(())
        };
        let read = async {
            let mut scrap = [0; 64];
            while stream.read(&mut scrap).await? > 0 {}
            Ok(())
        };
        let result = write.or(read).await;
        stream.close().await;
        result
    }

    /// One JSON document a text frame, with pings.
    async fn websocket(&self, stream: Stream, accept: &str, payload: &[u8]) -> std::io::Result<()> {
        let socket = WebSocket::accept(stream, accept).await?;
        let unanswered = Cell::new(0u32);
        let write = async {
            while let Some(event) = self.next().await {
                socket.send(Opcode::Text, event.as_bytes()).await?;
            }
            Ok(())
        };
        let ping = async {
            loop {
                if unanswered.get() > MISSED {
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
                unanswered.set(unanswered.get() + 1);
                socket.send(Opcode::Ping, payload).await?;
                sleep(PING).await;
            }
        };
        let hear = async {
            let mut inbox = Inbox::new(256);
            loop {
                match socket.receive(&mut inbox).await? {
                    Received::Closed | Received::Lost => return Ok(()),
                    Received::Pong => unanswered.set(0),
                    // A listener has nothing else to say.
                    Received::Data { .. } => {}
                }
            }
        };
        let result = write.or(ping).or(hear).await;
        socket.close().await;
        result
    }
}

/// The event around `metadata` (JSON), stamped now: the host's own stamp is replaced, as the real
/// agents do (P§4.3).
pub(crate) fn stamped(kind: &str, metadata: &str) -> String {
    let (seconds, nanoseconds) = clock::wall();
    let mut out = String::with_capacity(metadata.len() + 96);
    out.push_str("{\"type\":");
    let _infallible = mote_agent::json::quote(&mut out, kind);
    out.push_str(",\"timestamp\":\"");
    let _infallible = mote_agent::wall::write_rfc3339(&mut out, seconds, nanoseconds);
    out.push_str("\",\"metadata\":");
    out.push_str(metadata);
    out.push('}');
    out
}
