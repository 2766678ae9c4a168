//! Serves HTTP on one connection, as `net/serve.rs` does.

use std::rc::Rc;

use mote_core::http::admission::Activity;
use mote_core::http::connection::{BUFFER, Connection, Event, Timeouts};
use mote_core::http::head::{Method, Request};
use mote_core::http::reply::{Head, Length, Persistence, write_reply};

use super::agent::{Hearer, micros, uptime};
use super::host_call::STALLED;
use crate::machine::executor::{Micros, Sim, Zone};
use crate::machine::net::Stream;
use crate::machine::wait::{either, until, within};

/// Buffer of a connection at first, bytes.
const ROOM: usize = 1024;

/// An answer with its body.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type: "application/json", location: None, body: body.into() }
    }

    pub(crate) fn text(status: u16, text: &str) -> Self {
        let body = format!("{text}\n").into_bytes();
        Self { status, content_type: "text/plain; charset=utf-8", location: None, body }
    }
}

/// A handler's answer.
pub(crate) enum Answer {
    Reply(Reply),
    /// The connection gets events from now on.
    Events(Rc<Hearer>),
}

/// A handler of requests.
pub(crate) trait Service {
    /// Longest body, bytes.
    const BODY: usize;

    async fn answer(&self, stream: &Stream, request: &Request<'_>, body: &[u8]) -> Answer;

    fn refuse(&self, status: u16, text: &str) -> Reply;

    /// What the connection does now, for admission.
    fn note(&self, _: Activity) {}

    /// An answer was written.
    fn answered(&self) {}
}

enum Step {
    Next,
    Read,
    Continue,
    Answer,
    Refuse(u16, &'static str),
}

/// Serves requests until the peer or a deadline ends it.
pub(crate) async fn serve<S: Service>(sim: &Sim, stream: Stream, service: &S) {
    let mut connection = Connection::with_buffer(uptime(sim), Timeouts::default(), vec![0; ROOM]);
    let mut body = Vec::new();
    loop {
        let step = match connection.poll(uptime(sim)) {
            Event::NeedData => Step::Read,
            Event::Request => Step::Next,
            Event::Continue => Step::Continue,
            Event::Body(bytes) => {
                body.extend_from_slice(bytes);
                let is_long = body.len() > S::BODY;
                if is_long { Step::Refuse(413, "Request body too long") } else { Step::Next }
            }
            Event::EndOfBody => Step::Answer,
            Event::Refuse { status, text } => Step::Refuse(status, text),
            Event::TimedOut | Event::Closed => break,
        };
        let goes_on = match step {
            Step::Next => true,
            Step::Read => {
                service.note(connection.activity());
                read(sim, &stream, &mut connection).await
            }
            Step::Continue => put(sim, &stream, b"HTTP/1.1 100 Continue\r\n\r\n").await,
            Step::Answer => {
                let answered = answer(sim, &stream, &mut connection, service, &body).await;
                body.clear();
                match answered {
                    Ok(goes_on) => goes_on,
                    Err(hearer) => return listen(sim, &stream, &hearer).await,
                }
            }
            Step::Refuse(status, text) => {
                let reply = service.refuse(status, text);
                write(sim, &stream, &reply, Persistence::Close, false).await;
                false
            }
        };
        if !goes_on {
            break;
        }
    }
    service.note(Activity::Closing);
}

/// Reads once, or until the deadline; false if the connection is broken.
async fn read(sim: &Sim, stream: &Stream, connection: &mut Connection<Vec<u8>>) -> bool {
    let space = connection.space().len();
    let buffer = connection.buffer();
    if buffer.len() > ROOM && buffer.len() - space <= ROOM / 2 {
        buffer.truncate(ROOM);
    } else if space < buffer.len() / 2 && buffer.len() < BUFFER {
        buffer.resize(BUFFER.min(4 * buffer.len()), 0);
    }
    let deadline = connection.deadline().map_or(Micros::MAX, micros);
    let late = async {
        until(sim, Zone::Guest, deadline).await;
        None
    };
    let read = either(async { Some(stream.read(connection.space()).await) }, late).await;
    match read {
        Some(Ok(count)) => {
            connection.filled(uptime(sim), count);
            true
        }
        Some(Err(_)) => false,
        None => true,
    }
}

/// Answers the current request; whether another may follow, or who listens from now on.
async fn answer(
    sim: &Sim,
    stream: &Stream,
    connection: &mut Connection<Vec<u8>>,
    service: &impl Service,
    body: &[u8],
) -> Result<bool, Rc<Hearer>> {
    service.note(Activity::Served);
    let (answer, persistence, bodiless) = {
        let Some(request) = connection.request() else { return Ok(false) };
        let is_head = request.method == Method::Head;
        (service.answer(stream, &request, body).await, Persistence::of(&request), is_head)
    };
    let reply = match answer {
        Answer::Reply(reply) => reply,
        Answer::Events(hearer) => return Err(hearer),
    };
    service.note(Activity::Writing);
    let is_whole = write(sim, stream, &reply, persistence, bodiless).await;
    let keep_alive = is_whole && persistence != Persistence::Close;
    service.answered();
    connection.done(uptime(sim), keep_alive);
    Ok(keep_alive)
}

async fn write(
    sim: &Sim,
    stream: &Stream,
    reply: &Reply,
    persistence: Persistence,
    is_bodiless: bool,
) -> bool {
    let extra: Vec<_> = reply.location.iter().map(|path| ("Location", path.as_str())).collect();
    let length = u64::try_from(reply.body.len()).expect("a length");
    let head = Head {
        status: reply.status,
        content_type: Some(reply.content_type),
        length: Length::Known(length),
        persistence,
        extra: &extra,
    };
    let mut out = String::new();
    write_reply(&mut out, &head).expect("a head that can be written");
    let mut out = out.into_bytes();
    out.extend_from_slice(if is_bodiless { &[] } else { &reply.body });
    put(sim, stream, &out).await
}

async fn put(sim: &Sim, stream: &Stream, bytes: &[u8]) -> bool {
    let written = within(sim, Zone::Guest, STALLED, stream.write_all(bytes)).await;
    written.is_some_and(|written| written.is_ok())
}

/// Writes each event as a line, until the listener goes.
async fn listen(sim: &Sim, stream: &Stream, hearer: &Hearer) {
    if !put(sim, stream, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n").await {
        return;
    }
    loop {
        let seen = hearer.signal.seen();
        let lines = hearer.queue.take();
        for line in lines {
            if !put(sim, stream, format!("{line}\n").as_bytes()).await {
                return;
            }
        }
        let next = async {
            hearer.signal.after(seen).await;
            true
        };
        let gone = async {
            let mut scrap = [0; 16];
            while stream.read(&mut scrap).await.is_ok_and(|count| count > 0) {}
            false
        };
        if !either(next, gone).await {
            return;
        }
    }
}
