//! One request of a guest, from its head to its answer (P§5.2 to P§5.4): which permits it waits
//! for, which call it makes, when the Ready state is stored, and what the guest gets.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::dial::{CALL_TIMEOUT, Call, Reply, Retry, find};
use crate::flavour::Flavour;
use crate::hostapi::info::write_index;
use crate::http::head::{Method, Request, lists};
use crate::http::path::Segments;
use crate::http::reply::{Head, Length, Persistence, write_reply};
use crate::json::{Document, Value};

use super::answer::{Body, present, unreachable};
use super::forward::{forwards, returns, write_target};
use super::quota::Quota;
use super::ready::{Hold, Ready, ReadyState};
use super::route::{Ask, NoRoute, Route, route};

/// Time limit for a guest's wait for a host operation (`/1.0/operations/{id}/wait`).
const OPERATION: Duration = Duration::from_secs(3600);

/// A request and the state of its exchange. When dropped, it releases its share of the Ready lock.
#[derive(Debug)]
pub struct Exchange<'r> {
    flavour: Flavour,
    ready: &'r Ready,
    request: &'r Request<'r>,
    body: &'r [u8],
    /// What to ask the host, once the request has a route.
    ask: Ask,
    target: String,
    headers: Vec<(&'r str, &'r str)>,
    /// The body to send instead of the guest's, if it was changed.
    typed: Option<Document>,
    hold: Option<Hold<'r>>,
    state: Option<ReadyState>,
    /// The answer to send once the state is stored.
    answer: Option<Answer>,
}

#[derive(Debug)]
pub enum Event {
    /// The request is complete.
    Request {
        /// False if the client connected before the host disabled devlxd.
        is_enabled: bool,
    },
    Granted(Quota),
    /// The permit was refused, or the client left while it waited.
    Refused(Quota),
    Released,
    Stored,
    Reply {
        reply: Reply,
        /// Whether the client holds [`Quota::LongReply`].
        may_be_long: bool,
    },
    /// The call failed or timed out.
    Failed(String),
}

#[derive(Debug)]
pub enum Next<'e> {
    /// Send this answer; the exchange has ended.
    Answer(Answer),
    /// Send events; the exchange has ended.
    Listen,
    /// Obtain this permit. While this request waits for [`Quota::LongReply`], others may call.
    Obtain(Quota),
    /// Wait until the Ready lock is released.
    Wait,
    /// Store the state for the next agent; it is already set.
    Store { state: ReadyState, is_accepted: bool },
    /// Make this call and read the whole answer.
    Call {
        call: Call<'e>,
        /// Whether to give up when the client leaves; false if the request changes something.
        ends_with_client: bool,
    },
    /// Make this call and pass on a body of any size if the status is 200.
    Stream(Call<'e>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub format: Body,
    pub etag: Option<String>,
    pub body: Vec<u8>,
}

impl<'r> Exchange<'r> {
    pub fn new(
        flavour: Flavour,
        ready: &'r Ready,
        request: &'r Request<'r>,
        body: &'r [u8],
    ) -> Self {
        Self {
            flavour,
            ready,
            request,
            body,
            ask: Ask::Json,
            target: String::new(),
            headers: Vec::new(),
            typed: None,
            hold: None,
            state: None,
            answer: None,
        }
    }

    #[inline(never)] // its size
    pub fn next(&mut self, event: Event) -> Next<'_> {
        match event {
            Event::Request { is_enabled: false } => text(403, "Forbidden"),
            Event::Request { is_enabled: true } => self.start(),
            Event::Granted(Quota::Listener) => Next::Listen,
            Event::Granted(Quota::Queued) => {
                Next::Obtain(if self.ask.takes_long() { Quota::LongPoll } else { Quota::Call })
            }
            Event::Granted(Quota::Call | Quota::LongPoll | Quota::LargeBody) => self.prepare(),
            Event::Granted(Quota::LongReply) => self.call(),
            Event::Refused(Quota::Listener) => text(503, "Too many event listeners"),
            Event::Refused(Quota::Queued) => {
                text(429, "Too many requests are waiting for the host")
            }
            Event::Refused(Quota::Call | Quota::LongPoll | Quota::LargeBody) => {
                text(503, "Too many long requests")
            }
            Event::Refused(Quota::LongReply) => self.failed("the guest client is gone"),
            Event::Released => self.lock(),
            Event::Stored => match self.answer.take() {
                Some(answer) => Next::Answer(answer),
                None => self.call(),
            },
            Event::Reply { reply, .. } if reply.is_whole => self.answer(reply),
            // Call again with a permit, because many half-received answers would need much memory.
            Event::Reply { may_be_long: false, .. } if self.method() == "GET" => {
                Next::Obtain(Quota::LongReply)
            }
            Event::Reply { .. } => self.failed("the host's answer is too long"),
            Event::Failed(why) => self.failed(&why),
        }
    }

    fn start(&mut self) -> Next<'_> {
        match route(self.flavour, self.request.method, self.request.path) {
            Ok(Route::Index) => {
                let body = Document::new(16, write_index).line().into_bytes();
                Next::Answer(Answer { status: 200, format: Body::Json, etag: None, body })
            }
            Ok(Route::Events) => Next::Obtain(Quota::Listener),
            Ok(Route::Ask(ask)) => {
                self.ask = ask;
                Next::Obtain(Quota::Queued)
            }
            Err(NoRoute::Verb) => {
                text(404, &["Method \"", self.request.method_text, "\" not found"].concat())
            }
            Err(other @ (NoRoute::Path | NoRoute::Method | NoRoute::Encoding | NoRoute::Key)) => {
                let (status, why) = other.reply();
                text(status, why)
            }
        }
    }

    fn prepare(&mut self) -> Next<'_> {
        let request = self.request;
        self.target.reserve(request.path.len() + 32);
        let _infallible = write_target(&mut self.target, self.ask, request.path, request.query);
        for (name, value) in request.headers.iter() {
            // Drops hop-by-hop headers that the client names (RFC 9110 §7.6.1).
            if forwards(self.ask, name, value) && !request.headers.has_token("connection", name) {
                let Ok(value) = core::str::from_utf8(value) else {
                    return text(400, &["Header ", name, " is not UTF-8"].concat());
                };
                self.headers.push((name, value));
            }
        }
        if !self.body.is_empty() {
            self.headers.push(("Content-Type", "application/json"));
        }
        if request.method == Method::Post {
            self.typed = typed(request.path, self.body);
        }
        self.lock()
    }

    /// Takes a share of the Ready lock if the request sets the state.
    fn lock(&mut self) -> Next<'_> {
        if self.ask != Ask::SetState {
            return self.call();
        }
        self.hold = self.ready.share();
        if self.hold.is_none() {
            return Next::Wait;
        }
        self.state = ReadyState::in_body(self.body);
        match self.state {
            // Store it before the host has it, so that an agent started meanwhile repeats no Ready.
            Some(state @ ReadyState::Started) => self.store(state, false),
            _ => self.call(),
        }
    }

    fn store(&self, state: ReadyState, is_accepted: bool) -> Next<'static> {
        self.ready.set(state);
        Next::Store { state, is_accepted }
    }

    fn call(&self) -> Next<'_> {
        let method = self.method();
        let body = self.typed.as_ref().map_or(self.body, |typed| typed.value().raw().as_bytes());
        let call = Call {
            method,
            target: &self.target,
            body: (method != "GET").then_some(body),
            extra: &self.headers,
            timeout: if self.ask == Ask::OperationWait { OPERATION } else { CALL_TIMEOUT },
            retry: if self.ask == Ask::MetaData { Retry::Patient } else { Retry::Dial },
        };
        if self.ask == Ask::ImageExport && self.request.method == Method::Get {
            return Next::Stream(call);
        }
        Next::Call { call, ends_with_client: self.ask == Ask::OperationWait }
    }

    fn method(&self) -> &'r str {
        if self.request.method == Method::Head { "GET" } else { self.request.method_text }
    }

    fn answer(&mut self, reply: Reply) -> Next<'_> {
        let (shown, body) = present(self.flavour, self.ask, reply.status, reply.body);
        let answer = Answer { status: shown.status, format: shown.body, etag: reply.etag, body };
        match self.state.filter(|_| reply.status == 200) {
            Some(state) => {
                self.answer = Some(answer);
                self.store(state, true)
            }
            None => Next::Answer(answer),
        }
    }

    /// Answers 500, the only status after which cloud-init retries (P§5.4).
    fn failed(&self, why: &str) -> Next<'static> {
        text(500, &[unreachable(self.flavour, self.ask), why].concat())
    }
}

/// Returns an error as text with a newline (P§5.2).
#[inline(never)] // its size
fn text(status: u16, text: &str) -> Next<'static> {
    let body = [text.as_bytes(), b"\n"].concat();
    Next::Answer(Answer { status, format: Body::Text, etag: None, body })
}

/// Adds a volume type that is missing or empty to the body of a volume's POST (P§5.3). The type is
/// that of the path, still percent-encoded. Returns `None` if nothing is to be added.
pub fn typed(path: &str, body: &[u8]) -> Option<Document> {
    let segments = Segments::split(path)?;
    let has_type =
        segments.count() == 5 && segments.is(3, "volumes") && segments.is(1, "storage-pools");
    let lacks = |body: &Value<'_>| {
        has_type && body.is_object() && body.member("type").is_none_or(|kind| kind.is(""))
    };
    let parsed = Value::parse(body).ok().filter(lacks)?;
    Some(Document::new(body.len() + 32, |json| {
        json.begin_object();
        json.pair("type", segments.raw(4));
        for (name, value) in parsed.members().filter(|(name, _)| !name.is("type")) {
            json.member(name, value);
        }
        json.end_object();
    }))
}

/// Writes the head of the answer with an image, from the headers of the host's answer; returns how
/// the body ends. Errors: a header cannot be written.
pub fn write_image_head(
    out: &mut String,
    request: &Request<'_>,
    headers: &[(String, String)],
) -> Result<Length, fmt::Error> {
    let length = match find(headers, "content-length").and_then(|length| length.parse().ok()) {
        Some(length) => Length::Known(length),
        None if request.http10 => Length::UntilClose,
        None => Length::Chunked,
    };
    let connection = find(headers, "connection").unwrap_or_default().as_bytes();
    let extra: Vec<_> = headers
        .iter()
        .filter(|(name, _)| returns(name) && !lists(connection, name))
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let content_type = Some(find(headers, "content-type").unwrap_or("application/octet-stream"));
    let persistence = Persistence::of(request);
    write_reply(out, &Head { status: 200, content_type, length, persistence, extra: &extra })?;
    Ok(length)
}

#[cfg(test)]
mod tests;
