//! Serves one connection: requests in, answers out, until either side is done. The HTTP rules and
//! deadlines are the core's (`http/connection.rs`); this moves the bytes. The same loop serves
//! guests and the host.

use std::fmt::Write;

use mote_agent::http::connection::{self, Event, Timeouts};
use mote_agent::http::head::{Method, Request};
use mote_agent::http::reply::{Head, Length, write_reply};

use crate::clock::{now, until};
use crate::stream::Stream;
use crate::upgrade::Upgrade;
use futures_lite::FutureExt;

/// Room for a request at first, bytes: nearly all fit into it.
const ROOM: usize = 1024;
/// Bodies up to this are written together with their head, bytes: one write, one TLS record.
const TOGETHER: usize = 15 * 1024;
/// Plain text, as Go's `http.Error` says it (P§5.2).
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// JSON.
pub(crate) const JSON: &str = "application/json";

/// A connection whose buffer grows with what comes.
type Connection = connection::Connection<Vec<u8>>;

/// An answer that is held whole.
#[derive(Debug)]
pub(crate) struct Reply {
    /// HTTP status.
    pub(crate) status: u16,
    /// `Content-Type`.
    pub(crate) content_type: &'static str,
    /// `ETag`, if there is one.
    pub(crate) etag: Option<String>,
    /// `Location`, if there is one.
    pub(crate) location: Option<String>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// A JSON answer.
    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type: JSON, etag: None, location: None, body: body.into() }
    }

    /// An error as text with a newline (P§5.2).
    pub(crate) fn text(status: u16, text: &str) -> Self {
        let mut body = Vec::with_capacity(text.len() + 1);
        body.extend(text.as_bytes());
        body.push(b'\n');
        Self { status, content_type: TEXT, etag: None, location: None, body }
    }
}

/// What a handler did with a request.
pub(crate) enum Answer {
    /// Write this.
    Reply(Reply),
    /// It wrote a complete answer itself; whether the connection can go on.
    Written {
        /// Whether another request may follow.
        keep_alive: bool,
    },
    /// The connection becomes something else.
    Upgrade(Upgrade),
}

/// Who answers.
pub(crate) trait Service {
    /// Longest body it takes, bytes. Over it: 413.
    const BODY: usize;

    /// Answers one request whose body is complete.
    async fn answer(&self, stream: &Stream, request: &Request<'_>, body: &[u8]) -> Answer;

    /// How a request that is refused before it got here is answered.
    fn refuse(&self, status: u16, text: &str) -> Reply;
}

/// Serves requests until the peer or a deadline ends it.
///
/// # Cancellation
/// The connection is dropped; an answer may be cut.
pub(crate) async fn serve<S: Service>(stream: Stream, service: &S) {
    let mut connection = Connection::with_buffer(now(), Timeouts::default(), vec![0; ROOM]);
    let mut body = Vec::new();
    loop {
        let step = match connection.poll(now()) {
            Event::NeedData => Step::Read,
            Event::Request => {
                body = Vec::new();
                Step::Next
            }
            Event::Continue => Step::Continue,
            Event::Body(bytes) if body.len() + bytes.len() > S::BODY => {
                Step::Refuse(413, "Request body too long")
            }
            Event::Body(bytes) => {
                body.extend_from_slice(bytes);
                Step::Next
            }
            Event::EndOfBody => Step::Answer,
            Event::Refuse { status, text } => Step::Refuse(status, text),
            Event::TimedOut | Event::Closed => break,
        };
        let going_on = match step {
            Step::Next => true,
            Step::Read => read(&stream, &mut connection).await,
            Step::Continue => stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok(),
            Step::Answer => match answer(&stream, &mut connection, service, &body).await {
                After::Next => true,
                After::End => false,
                After::Upgrade(upgrade) => {
                    stream.unread(connection.leftover());
                    drop((connection, body));
                    return upgrade.run(stream).await;
                }
            },
            Step::Refuse(status, text) => {
                let reply = service.refuse(status, text);
                // Refused is refused, whether or not the peer hears it.
                drop(write(&stream, &reply, Shape { close: true, bodiless: false }).await);
                false
            }
        };
        if !going_on {
            break;
        }
    }
    stream.close().await;
}

enum Step {
    Next,
    Read,
    Continue,
    Answer,
    Refuse(u16, &'static str),
}

/// Reads what is there, or lets the deadline pass; false is a broken connection.
async fn read(stream: &Stream, connection: &mut Connection) -> bool {
    make_room(connection);
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

/// Makes the buffer larger if little of it is left.
fn make_room(connection: &mut Connection) {
    let space = connection.space().len();
    let buffer = connection.buffer();
    if space < buffer.len() / 2 && buffer.len() < connection::BUFFER {
        buffer.resize(connection::BUFFER.min(4 * buffer.len()), 0);
    }
}

/// What follows an answer.
enum After {
    Next,
    End,
    Upgrade(Upgrade),
}

/// Answers the current request.
async fn answer(
    stream: &Stream,
    connection: &mut Connection,
    service: &impl Service,
    body: &[u8],
) -> After {
    let (answer, shape) = {
        let Some(request) = connection.request() else { return After::End };
        let close = !request.keep_alive;
        let shape = Shape { close, bodiless: request.method == Method::Head };
        (service.answer(stream, &request, body).await, shape)
    };
    let whole = match answer {
        Answer::Written { keep_alive } => keep_alive,
        Answer::Reply(reply) => write(stream, &reply, shape).await.is_ok(),
        Answer::Upgrade(upgrade) => return After::Upgrade(upgrade),
    };
    let keep_alive = whole && !shape.close;
    connection.done(now(), keep_alive);
    if keep_alive { After::Next } else { After::End }
}

/// How an answer goes out.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "two unrelated facts of one request")]
struct Shape {
    close: bool,
    bodiless: bool,
}

async fn write(stream: &Stream, reply: &Reply, shape: Shape) -> std::io::Result<()> {
    let mut extra = heapless::Vec::<(&str, &str), 3>::new();
    if reply.status >= 400 {
        // As Go's error writer does; both flavours' clients expect it (P§5.2). Room for three.
        let _fits = extra.push(("X-Content-Type-Options", "nosniff"));
    }
    if let Some(etag) = &reply.etag {
        let _fits = extra.push(("ETag", etag));
    }
    if let Some(location) = &reply.location {
        let _fits = extra.push(("Location", location));
    }
    let mut head = String::with_capacity(256);
    let length = u64::try_from(reply.body.len()).unwrap_or(u64::MAX);
    let written = write_reply(
        &mut head,
        &Head {
            status: reply.status,
            content_type: Some(reply.content_type),
            length: Length::Known(length),
            close: shape.close,
            extra: &extra,
        },
    );
    if written.is_err() {
        head.clear();
        let _infallible =
            head.write_str("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
        return stream.write_all(head.as_bytes()).await;
    }
    let mut out = head.into_bytes();
    if shape.bodiless {
        return stream.write_all(&out).await;
    }
    if reply.body.len() <= TOGETHER {
        out.extend_from_slice(&reply.body);
        return stream.write_all(&out).await;
    }
    stream.write_all(&out).await?;
    stream.write_all(&reply.body).await
}
