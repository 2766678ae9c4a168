//! `/1.0/events`: what the host posts, handed to every listener, as a stream of lines or as a
//! websocket (P§4.3). A slow listener is dropped with a log line and never slows the others.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::FutureExt;
use mote_agent::http::head::Request;
use mote_agent::http::target;
use mote_agent::ws;

use crate::clock::{self, sleep};
use crate::exchange::Answer;
use crate::log;
use crate::signal::Signal;
use crate::stream::Stream;

/// Listeners at once, guests and host together. Over it: 503.
const LISTENERS: usize = 64;
/// Events held for one listener. Over it: that listener is dropped.
const QUEUED: usize = 64;
/// Between pings to a websocket (P§4.3).
const PING: Duration = Duration::from_secs(10);
/// Pings that may go unanswered (P§4.3).
const MISSED: u32 = 2;

/// All listeners.
#[derive(Default)]
pub(crate) struct Events {
    listeners: RefCell<Vec<Rc<Listener>>>,
}

/// One listener's queue.
struct Listener {
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
            if !listener.types.is_empty() && !listener.types.split(',').any(|word| word == kind) {
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

    /// How many listen.
    pub(crate) fn count(&self) -> usize {
        self.listeners.borrow().len()
    }

    /// Serves a listener until it leaves or falls behind.
    pub(crate) async fn serve(&self, stream: &Stream, request: &Request<'_>) -> Answer {
        let accept = match upgrade(request) {
            Ok(accept) => accept,
            Err(why) => return Answer::Reply(crate::exchange::Reply::text(400, why)),
        };
        if self.count() >= LISTENERS {
            let text = "Too many event listeners";
            return Answer::Reply(crate::exchange::Reply::text(503, text));
        }
        let types = target::query(request.query, "type").unwrap_or_default().to_owned();
        let listener = Rc::new(Listener {
            types,
            queue: RefCell::default(),
            overrun: Cell::new(false),
            signal: Signal::default(),
        });
        self.listeners.borrow_mut().push(listener.clone());
        let _registered = Registered { events: self, listener: &listener };
        let result = match &accept {
            Some(accept) => listener.websocket(stream, accept).await,
            None => listener.lines(stream).await,
        };
        if listener.overrun.get() {
            log::warn(format_args!("an event listener was too slow and is dropped"));
        } else if let Err(error) = result {
            log::debug(format_args!("an event listener is gone: {error}"));
        }
        Answer::Written { keep_alive: false }
    }
}

/// Takes the listener off the list however serving it ends.
struct Registered<'e> {
    events: &'e Events,
    listener: &'e Rc<Listener>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.events.listeners.borrow_mut().retain(|other| !Rc::ptr_eq(other, self.listener));
    }
}

impl Listener {
    /// The next event; `None` once the listener fell behind.
    async fn next(&self) -> Option<Rc<str>> {
        loop {
            let seen = self.signal.seen();
            if self.overrun.get() {
                return None;
            }
            if let Some(event) = self.queue.borrow_mut().pop_front() {
                return Some(event);
            }
            self.signal.after(seen).await;
        }
    }

    /// One JSON document a line, for as long as the client stays.
    async fn lines(&self, stream: &Stream) -> std::io::Result<()> {
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
        write.or(read).await
    }

    /// One JSON document a text frame, with pings.
    async fn websocket(&self, stream: &Stream, accept: &str) -> std::io::Result<()> {
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        let unanswered = Cell::new(0u32);
        let write = async {
            while let Some(event) = self.next().await {
                frame(stream, ws::Opcode::Text, event.as_bytes()).await?;
            }
            frame(stream, ws::Opcode::Close, &[]).await
        };
        let ping = async {
            loop {
                if unanswered.get() > MISSED {
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
                unanswered.set(unanswered.get() + 1);
                frame(stream, ws::Opcode::Ping, &[]).await?;
                sleep(PING).await;
            }
        };
        write.or(ping).or(hear(stream, &unanswered)).await
    }
}

/// Reads what a websocket listener sends, until it leaves.
async fn hear(stream: &Stream, unanswered: &Cell<u32>) -> std::io::Result<()> {
    let mut reader = ws::Reader::default();
    let mut buffer = [0; 256];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let mut rest = buffer.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            match reader.take(&mut rest) {
                Ok(ws::Incoming::More) => {}
                Ok(ws::Incoming::Pong) => unanswered.set(0),
                Ok(ws::Incoming::Ping(payload)) => {
                    frame(stream, ws::Opcode::Pong, &payload).await?;
                }
                Ok(ws::Incoming::Close) => return frame(stream, ws::Opcode::Close, &[]).await,
                Err(_) => return Err(std::io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// Writes one frame in one go, so that frames of two writers never mix.
async fn frame(stream: &Stream, opcode: ws::Opcode, payload: &[u8]) -> std::io::Result<()> {
    let mut header = [0; ws::HEADER];
    let size = ws::header(opcode, payload.len(), &mut header);
    let mut out = Vec::with_capacity(size + payload.len());
    out.extend_from_slice(header.get(..size).unwrap_or_default());
    out.extend_from_slice(payload);
    stream.write_all(&out).await
}

/// The `Sec-WebSocket-Accept` of a websocket request; `None` for a plain one.
fn upgrade(request: &Request<'_>) -> Result<Option<String>, &'static str> {
    if !request.headers.has_token("Upgrade", "websocket") {
        return Ok(None);
    }
    if request.headers.get("Sec-WebSocket-Version") != Some(b"13") {
        return Err("Unsupported websocket version");
    }
    let Some(key) = request.headers.get("Sec-WebSocket-Key") else {
        return Err("Missing Sec-WebSocket-Key");
    };
    let mut context = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(ws::ACCEPT_SUFFIX.as_bytes());
    let mut accept = String::new();
    let _infallible = ws::write_base64(&mut accept, context.finish().as_ref());
    Ok(Some(accept))
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
