//! Serves HTTP on one connection, of a guest client or the host. The core's `http/connection.rs`
//! has the HTTP rules and deadlines; this module moves the bytes.

use std::time::Duration;

use mote_core::http::admission::Activity;
use mote_core::http::connection::{self, Event};
use mote_core::http::head::{Method, Request};
use mote_core::http::reply::{Head, Length, Persistence, write_reply};
use mote_core::time::Uptime;
use smol::future::{FutureExt, ready, yield_now};

use crate::built::BoxFuture;
use crate::net::stream::Stream;
use crate::runtime::{Permit, now, until};

/// Initial buffer size, in bytes: nearly all requests fit. [`Limiter::enlarge`] permits more.
const FIRST_BUFFER: usize = 1024;
/// Long bodies are written in pieces of this length, in bytes: a client that does not read costs
/// one TLS record. Each piece restarts the client's time limit ([`Limiter::note`]).
const BODY_PIECE: usize = 16 * 1024;
/// Bodies up to this length, in bytes, are written with their head: one write, one TLS record.
const TOGETHER: usize = 15 * 1024;
/// Pause after an accept that failed for a temporary reason, such as too few descriptors.
pub(crate) const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Content type of plain text, as Go's `http.Error` sends it (P§5.2).
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const JSON: &str = "application/json";

type Connection = connection::Connection<Vec<u8>>;

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    /// One more header field: `ETag` or `Location`.
    pub(crate) header: Option<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Released when the body is sent: memory reserved for it.
    pub(crate) share: Option<Permit>,
    /// Released when the body is sent: the host's request is in progress until then.
    pub(crate) request: Option<Permit>,
}

impl Reply {
    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::of(status, JSON, body.into())
    }

    pub(crate) fn of(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status, content_type, header: None, body, share: None, request: None }
    }

    /// Returns an error as text with a newline (P§5.2).
    pub(crate) fn text(status: u16, text: &str) -> Self {
        let mut body = Vec::with_capacity(text.len() + 1);
        body.extend(text.as_bytes());
        body.push(b'\n');
        Self::of(status, TEXT, body)
    }
}

pub(crate) enum Answer {
    /// The caller writes this reply.
    Reply(Reply),
    /// The handler has written a complete answer.
    Written {
        /// Whether another request may follow.
        keep_alive: bool,
    },
    Upgrade(Upgrade),
}

pub(crate) struct Admission {
    /// Maximum size of the body, in bytes; beyond it: 413.
    pub(crate) most: usize,
    /// Memory for the body until it is answered.
    #[expect(dead_code, reason = "released when this is dropped")]
    pub(crate) share: Option<Permit>,
}

/// A refusal: HTTP status and text.
pub(crate) type Refused = (u16, &'static str);

pub(crate) const TOO_LONG: Refused = (413, "Request body too long");

/// A handler of requests. Its futures are boxed, so that one [`serve`] is linked for all handlers
/// and idle connections stay small.
pub(crate) trait Service {
    /// Maximum size of a body accepted without [`Service::admit`], in bytes.
    fn longest_body(&self) -> usize;

    /// Decides on a body longer than [`Service::longest_body`]; called once per request.
    /// Errors: the refusal to send.
    fn admit<'a>(&'a self, _: &'a Request<'_>) -> BoxFuture<'a, Result<Admission, Refused>> {
        Box::pin(ready(Err(TOO_LONG)))
    }

    /// Answers a request whose body is complete.
    fn answer<'a>(
        &'a self,
        stream: &'a Stream,
        request: &'a Request<'_>,
        body: &'a [u8],
    ) -> BoxFuture<'a, Answer>;

    /// Returns the answer to a request that is refused before it reaches the handler.
    fn refuse(&self, status: u16, text: &str) -> Reply;

    /// Returns the limiter of the connection's peer, if it has one.
    fn limiter(&self) -> Option<&dyn Limiter> {
        None
    }
}

/// Is notified of what a connection does and holds; may drop the connection.
pub(crate) trait Limiter {
    fn note(&self, activity: Activity, now: Uptime);

    /// Waits until the connection may use more memory than its initial buffer.
    fn enlarge(&self) -> BoxFuture<'_>;

    fn answered(&self);
}

/// Serves requests until the peer or a deadline ends the connection.
/// Cancellation: the connection is dropped; an answer may be incomplete.
pub(crate) async fn serve(stream: Stream, service: &dyn Service) {
    let mut connection = Connection::with_buffer(now(), vec![0; FIRST_BUFFER]);
    let limiter = service.limiter();
    let (mut body, mut admission) = (Vec::new(), None);
    loop {
        let time = now();
        let most = admission.as_ref().map(|admission: &Admission| admission.most);
        let Some(step) = next(&mut connection, time, &mut body, most, service) else { break };
        let going_on = match step {
            Step::Next => true,
            Step::Room => {
                enlarge(limiter, &connection, time).await;
                true
            }
            Step::Admit => match admit(&connection, service).await {
                Ok(admitted) => {
                    admission = Some(admitted);
                    true
                }
                Err(refused) => Box::pin(refuse(&stream, service, refused)).await,
            },
            Step::Read => read(&stream, &mut connection, limiter, time).await,
            Step::Continue => stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok(),
            // Boxed, like refusals, to keep idle connections small.
            Step::Answer => {
                match Box::pin(answer(&stream, &mut connection, service, &body, time)).await {
                    After::Next { ahead } => {
                        // Free the body now, because the connection may be idle for long.
                        body = Vec::new();
                        admission = None;
                        if ahead {
                            // After each answer, let other connections run.
                            yield_now().await;
                        }
                        true
                    }
                    After::End => false,
                    After::Upgrade(upgrade) => {
                        stream.unread(connection.leftover());
                        drop((connection, body, admission));
                        return upgrade.run(stream).await;
                    }
                }
            }
            Step::Refuse(refused) => Box::pin(refuse(&stream, service, refused)).await,
        };
        if !going_on {
            break;
        }
    }
    drop((connection, body, admission));
    note(limiter, Activity::Closing, now());
    stream.close().await;
}

enum Step {
    Next,
    Room,
    Admit,
    Read,
    Continue,
    Answer,
    Refuse(Refused),
}

/// Returns the next step; `None` if the connection has ended.
fn next(
    connection: &mut Connection,
    time: Uptime,
    body: &mut Vec<u8>,
    admitted: Option<usize>,
    service: &dyn Service,
) -> Option<Step> {
    Some(match connection.poll(time) {
        Event::NeedData => Step::Read,
        Event::Request => {
            let fits = connection.is_within(FIRST_BUFFER as u64);
            if fits { Step::Next } else { Step::Room }
        }
        Event::Continue => Step::Continue,
        Event::Body(bytes) => {
            body.extend_from_slice(bytes);
            match admitted {
                None if body.len() > service.longest_body() => Step::Admit,
                Some(most) if body.len() > most => Step::Refuse(TOO_LONG),
                None | Some(_) => Step::Next,
            }
        }
        Event::EndOfBody => Step::Answer,
        Event::Refuse { status, text } => Step::Refuse((status, text)),
        Event::TimedOut | Event::Closed => return None,
    })
}

async fn admit(connection: &Connection, service: &dyn Service) -> Result<Admission, Refused> {
    match connection.request() {
        Some(request) => service.admit(&request).await,
        None => Err(TOO_LONG),
    }
}

/// Sends the refusal; returns false, because the connection ends.
async fn refuse(stream: &Stream, service: &dyn Service, (status, text): Refused) -> bool {
    let reply = service.refuse(status, text);
    let shape = Shape { persistence: Persistence::Close, bodiless: false };
    drop(write(stream, &reply, shape, service.limiter()).await);
    false
}

fn note(limiter: Option<&dyn Limiter>, activity: Activity, now: Uptime) {
    if let Some(limiter) = limiter {
        limiter.note(activity, now);
    }
}

async fn enlarge(limiter: Option<&dyn Limiter>, connection: &Connection, now: Uptime) {
    if let Some(limiter) = limiter {
        limiter.note(connection.activity(), now);
        limiter.enlarge().await;
    }
}

/// Reads once, or until the deadline; returns false if the connection is broken.
async fn read(
    stream: &Stream,
    connection: &mut Connection,
    limiter: Option<&dyn Limiter>,
    time: Uptime,
) -> bool {
    fit(connection, limiter, time).await;
    note(limiter, connection.activity(), time);
    let deadline = connection.deadline();
    let late = async {
        until(deadline).await;
        None
    };
    let read = async { Some(stream.read(connection.space()).await) }.or(late).await;
    match read {
        Some(Ok(count)) => {
            connection.filled(now(), count);
            true
        }
        Some(Err(_)) => false,
        None => true,
    }
}

/// Grows the buffer if little of it is free, and shrinks it if little is used.
async fn fit(connection: &mut Connection, limiter: Option<&dyn Limiter>, time: Uptime) {
    let space = connection.space().len();
    let buffer = connection.buffer();
    if buffer.len() > FIRST_BUFFER && buffer.len() - space <= FIRST_BUFFER / 2 {
        buffer.truncate(FIRST_BUFFER);
        buffer.shrink_to_fit();
    } else if space < buffer.len() / 2 && buffer.len() < connection::BUFFER {
        enlarge(limiter, connection, time).await;
        let buffer = connection.buffer();
        buffer.resize(connection::BUFFER.min(4 * buffer.len()), 0);
    }
}

enum After {
    Next {
        /// Whether the client has already sent more.
        ahead: bool,
    },
    End,
    Upgrade(Upgrade),
}

async fn answer(
    stream: &Stream,
    connection: &mut Connection,
    service: &dyn Service,
    body: &[u8],
    time: Uptime,
) -> After {
    let limiter = service.limiter();
    note(limiter, Activity::Served, time);
    let (answer, mut shape) = {
        let Some(request) = connection.request() else { return After::End };
        let persistence = Persistence::of(&request);
        let shape = Shape { persistence, bodiless: request.method == Method::Head };
        (service.answer(stream, &request, body).await, shape)
    };
    let whole = match answer {
        Answer::Written { keep_alive } => keep_alive,
        Answer::Reply(reply) => {
            if reply.status == 429 {
                // The server would also refuse pipelined requests.
                shape.persistence = Persistence::Close;
            }
            write(stream, &reply, shape, limiter).await.is_ok()
        }
        Answer::Upgrade(upgrade) => return After::Upgrade(upgrade),
    };
    let keep_alive = whole && shape.persistence != Persistence::Close;
    if let Some(limiter) = limiter {
        limiter.answered();
    }
    let ahead = !connection.leftover().is_empty();
    connection.done(now(), keep_alive);
    if keep_alive { After::Next { ahead } } else { After::End }
}

/// An answer's `Connection` header, and whether to omit the body (HEAD).
#[derive(Clone, Copy)]
struct Shape {
    persistence: Persistence,
    bodiless: bool,
}

async fn write(
    stream: &Stream,
    reply: &Reply,
    shape: Shape,
    limiter: Option<&dyn Limiter>,
) -> std::io::Result<()> {
    let mut extra = heapless::Vec::<(&str, &str), 2>::new();
    if reply.status >= 400 {
        // Go's error writer adds this, and both flavours' clients expect it (P§5.2). `extra` has
        // room for both fields.
        let _fits = extra.push(("X-Content-Type-Options", "nosniff"));
    }
    if let Some((name, value)) = &reply.header {
        let _fits = extra.push((name, value));
    }
    let mut head = String::with_capacity(256);
    let length = u64::try_from(reply.body.len()).unwrap_or(u64::MAX);
    let written = write_reply(
        &mut head,
        &Head {
            status: reply.status,
            content_type: Some(reply.content_type),
            length: Length::Known(length),
            persistence: shape.persistence,
            extra: &extra,
        },
    );
    if written.is_err() {
        let head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
        return stream.write_all(head).await;
    }
    let mut out = head.into_bytes();
    let body = if shape.bodiless { &[][..] } else { &reply.body };
    let (first, rest) = if body.len() <= TOGETHER { (body, &[][..]) } else { (&[][..], body) };
    out.extend_from_slice(first);
    for piece in std::iter::once(&out[..]).chain(rest.chunks(BODY_PIECE)) {
        note(limiter, Activity::Writing, now());
        stream.write_all(piece).await?;
    }
    Ok(())
}

/// The handler of an upgraded connection. The buffers of its last HTTP request are freed first, so
/// an idle exec or listener costs little more than its TLS state.
pub(crate) struct Upgrade(Box<dyn FnOnce(Stream) -> BoxFuture<'static>>);

impl Upgrade {
    pub(crate) fn new<F>(serve: impl FnOnce(Stream) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        Self(Box::new(|stream| Box::pin(serve(stream))))
    }

    pub(crate) fn run(self, stream: Stream) -> BoxFuture<'static> {
        self.0(stream)
    }
}

/// Answers 101 for `protocol`, with the header lines `more`, in a separate TLS record: the host
/// discards what it reads beyond the head (P§4.4). Errors: as for [`Stream::write_all`].
pub(crate) async fn switch(stream: &Stream, protocol: &str, more: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {protocol}\r\nConnection: Upgrade\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).await
}
