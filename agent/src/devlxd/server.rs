//! Serves the devlxd socket, which the host enables and disables at run time (P§5.1). Forwards all
//! requests except the index and the events to the host.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::answer::{Body, show, show_within, unreachable};
use mote_core::devlxd::forward::{
    forwards, lacks_type, returns, volume_type, write_target, write_typed,
};
use mote_core::devlxd::quota::Quota;
use mote_core::devlxd::route::{Ask, NoRoute, Route, route};
use mote_core::dial::Retry;
use mote_core::hostapi::event::Audience;
use mote_core::hostapi::info::write_index;
use mote_core::http::admission::Activity;
use mote_core::http::head::{Method, Request, lists};
use mote_core::http::reply::{
    Head, LAST_CHUNK, Length, Persistence, write_chunk_head, write_reply,
};
use mote_core::json::{Document, Value};
use mote_core::limits;
use smol::future::FutureExt;
use smol::future::{pending, yield_now};

use crate::agent::Agent;
use crate::agent::host::HOST_CALL_TIMEOUT;
use crate::built::BoxFuture;
use crate::devlxd::admission::{Entry, Guests};
use crate::devlxd::{ready, socket};
use crate::hostapi::events;
use crate::net::host_call::{Call, CallError, HostReply, Incoming, open};
use crate::net::serve::{ACCEPT_AGAIN, Answer, Limiter, Reply, Service, TEXT, serve};
use crate::net::stream::Stream;
use crate::runtime::clock::{now, sleep};
use crate::runtime::log;
use crate::transport;
use crate::transport::{Socket, is_passing};

/// Time limit for a guest's wait for a host operation (`/1.0/operations/{id}/wait`).
const OPERATION: Duration = Duration::from_secs(3600);
/// The kernel's send buffer for a client that does not read, bytes, before the kernel doubles it.
/// The minimum, because there may be hundreds, and a cgroup charges them to the agent.
const UNREAD: usize = 2 * 1024;
/// Send buffer of the few clients that receive an image or a long answer, bytes.
const UNREAD_LONG: usize = 8 * 1024;
/// The error of a call whose client has left.
const GONE: &str = "the guest client is gone";
/// Pause between attempts to open the socket, for example before `/dev` is mounted.
const REOPEN: Duration = Duration::from_secs(1);

/// Opens and closes the socket as the host demands.
pub(crate) async fn run(agent: Rc<Agent>) -> std::convert::Infallible {
    let guests = Rc::new(Guests::new());
    loop {
        let seen = agent.devlxd_changed.seen();
        if !agent.devlxd.get() {
            agent.devlxd_changed.after(seen).await;
            continue;
        }
        let path = socket::path(&agent.options.root, agent.flavour);
        match socket::open(&agent, &path) {
            Ok(listener) => {
                log::info(format_args!("devlxd on {}", path.display()));
                agent.status_changed.raise();
                let off = agent.devlxd_changed.after(seen);
                accept(&agent, &listener, &guests).or(off).await;
                // Remove the name before the listener closes: a client that finds it can connect.
                socket::hide(&agent, &path);
                drop(listener);
                if !agent.devlxd.get() {
                    log::info(format_args!("devlxd off"));
                    agent.status_changed.raise();
                }
            }
            Err(error) => {
                agent.report_error(format_args!("cannot open {}: {error}", path.display()));
                sleep(REOPEN).await;
            }
        }
    }
}

async fn accept(agent: &Rc<Agent>, listener: &Socket, guests: &Rc<Guests>) {
    let mut accepted = 0;
    loop {
        match transport::accept(listener).await {
            Ok(socket) => {
                guests.make_room().await;
                let user = transport::user(&socket);
                let serve = |entry| -> BoxFuture<'static> {
                    let guest = Guest { agent: agent.clone(), entry, has_asked: Cell::default() };
                    Box::pin(async move { serve(Stream::plain(socket), &guest).await })
                };
                guests.admit(user, serve, |serve| agent.boxed_task(serve)).await;
                // Then other tasks run, and closed clients free their descriptors. Not after each
                // one: they may be busy, and a new client may be behind many.
                accepted += 1;
                if accepted >= guests.at_once() {
                    accepted = 0;
                    yield_now().await;
                }
            }
            Err(error) => {
                let why = format!("cannot accept a guest client: {error}");
                if !is_passing(&error) {
                    return agent.report_error(format_args!("{why}"));
                }
                agent.shortage(&why);
                guests.close_one();
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Answers a guest client.
struct Guest {
    agent: Rc<Agent>,
    entry: Entry,
    has_asked: Cell<bool>,
}

impl Service for Guest {
    fn longest_body(&self) -> usize {
        limits::BODY
    }

    fn answer<'a>(
        &'a self,
        stream: &'a Stream,
        request: &'a Request<'_>,
        body: &'a [u8],
    ) -> BoxFuture<'a, Answer> {
        Box::pin(self.answer_in_turn(stream, request, body))
    }

    fn refuse(&self, status: u16, text: &str) -> Reply {
        Reply::text(status, text)
    }

    fn limiter(&self) -> Option<&dyn Limiter> {
        Some(&self.entry)
    }
}

impl Guest {
    async fn answer_in_turn(&self, stream: &Stream, request: &Request<'_>, body: &[u8]) -> Answer {
        let agent = &self.agent;
        if !agent.devlxd.get() {
            // The client connected before the host disabled devlxd.
            return Answer::Reply(Reply::text(403, "Forbidden"));
        }
        // It sends requests without reading: the kernel's buffers for it, even after a close, are
        // charged to the agent.
        if !self.has_asked.replace(true) {
            stream.limit_send_buffer(UNREAD);
        } else if stream.is_unread() {
            self.entry.note(Activity::Writing, now());
            if !stream.taken().await {
                return Answer::Written { keep_alive: false };
            }
            self.entry.note(Activity::Served, now());
        }
        match route(agent.flavour, request.method, request.path) {
            Ok(Route::Index) => {
                Answer::Reply(Reply::json(200, Document::new(16, write_index).line()))
            }
            Ok(Route::Events) => {
                if !self.entry.obtain(Quota::Listener).await {
                    return Answer::Reply(Reply::text(503, "Too many event listeners"));
                }
                let answer = events::listen(agent, request, Audience::Guest);
                if matches!(answer, Answer::Upgrade(_)) {
                    self.entry.leave();
                }
                answer
            }
            Ok(Route::Ask(ask)) => {
                if !self.entry.turn().await {
                    return Answer::Reply(Reply::text(429, "Too many requests wait for the host"));
                }
                let quota = if ask.takes_long() { Quota::LongPoll } else { Quota::Call };
                if !self.entry.obtain(quota).await {
                    return Answer::Reply(Reply::text(503, "Too many requests that take long"));
                }
                match self.forward(stream, request, ask, body).await {
                    Ok(answer) => answer,
                    // 500, because cloud-init retries after no other status (P§5.4).
                    Err(failed) => {
                        let text = format!("{}{}", unreachable(agent.flavour, ask), failed.why());
                        Answer::Reply(Reply::text(500, &text))
                    }
                }
            }
            Err(NoRoute::Verb) => {
                let text = format!("Method \"{}\" not found", request.method_text);
                Answer::Reply(Reply::text(404, &text))
            }
            Err(other @ (NoRoute::Path | NoRoute::Method | NoRoute::Encoding | NoRoute::Key)) => {
                let (status, text) = other.reply();
                Answer::Reply(Reply::text(status, text))
            }
        }
    }

    async fn forward(
        &self,
        stream: &Stream,
        request: &Request<'_>,
        ask: Ask,
        body: &[u8],
    ) -> Result<Answer, CallError> {
        let agent = &*self.agent;
        let mut target = String::with_capacity(request.path.len() + 32);
        let _infallible = write_target(&mut target, ask, request.path, request.query);
        let mut extra = Vec::new();
        for (name, value) in request.headers.iter() {
            // Drops hop-by-hop headers that the client names (RFC 9110 §7.6.1).
            if forwards(ask, name, value) && !request.headers.has_token("connection", name) {
                let Ok(value) = std::str::from_utf8(value) else {
                    let text = format!("Header {name} is not UTF-8");
                    return Ok(Answer::Reply(Reply::text(400, &text)));
                };
                extra.push((name, value));
            }
        }
        if !body.is_empty() {
            extra.push(("Content-Type", "application/json"));
        }
        let typed = if request.method == Method::Post { typed(request.path, body) } else { None };
        let body = typed.as_ref().map_or(body, |typed| typed.value().raw().as_bytes());
        let method = if request.method == Method::Head { "GET" } else { request.method_text };
        let (timeout, retry) = timeout(ask);
        let call = Call {
            method,
            target: &target,
            body: (request.method != Method::Get && request.method != Method::Head).then_some(body),
            extra: &extra,
            timeout,
            retry,
        };
        if ask == Ask::ImageExport && request.method == Method::Get {
            return self.export(stream, request, &call).await;
        }
        let _shared =
            if ask == Ask::SetState { Some(agent.ready_lock.clone().take().await) } else { None };
        let state = if ask == Ask::SetState { ready::asked(agent, body) } else { None };
        let reply = self.whole(stream, ask, &call).await?;
        if let Some(state) = state.filter(|_| reply.status == 200) {
            ready::accepted(agent, state);
        }
        Ok(Answer::Reply(shown(agent, ask, reply.status, reply.body, reply.etag)))
    }

    /// Reads the host's whole answer. A long one waits for its permit.
    async fn whole(
        &self,
        stream: &Stream,
        ask: Ask,
        call: &Call<'_>,
    ) -> Result<HostReply, CallError> {
        let has_its_turn = Cell::new(false);
        let longer = || {
            has_its_turn.set(has_its_turn.get() || self.entry.try_obtain(Quota::LongReply));
            has_its_turn.get()
        };
        loop {
            // Only a wait ends with its client: a request that changes something is completed.
            let left = async {
                if ask != Ask::OperationWait {
                    return pending().await;
                }
                stream.gone().await;
                Err(GONE.into())
            };
            let reply = self.agent.ask(call, &longer).or(left).await?;
            if reply.is_whole {
                if has_its_turn.get() {
                    stream.limit_send_buffer(UNREAD_LONG);
                }
                return Ok(reply);
            }
            if has_its_turn.get() || call.method != "GET" {
                return Err("the host's answer is too long".into());
            }
            // Requested again with a permit, because many half-received answers would need too much
            // memory. Meanwhile others may call.
            self.entry.has_called();
            let gone = async {
                stream.gone().await;
                false
            };
            has_its_turn.set(self.entry.obtain(Quota::LongReply).or(gone).await);
            if !has_its_turn.get() {
                return Err(GONE.into());
            }
        }
    }

    /// Relays an image of any size, one piece at a time.
    async fn export(
        &self,
        stream: &Stream,
        request: &Request<'_>,
        call: &Call<'_>,
    ) -> Result<Answer, CallError> {
        let agent = &*self.agent;
        let link = agent.known_link()?;
        let incoming = open(&link, call).await;
        agent.judge(link.host, incoming.as_ref().map(|incoming| incoming.status));
        let mut incoming = incoming?;
        stream.limit_send_buffer(UNREAD_LONG);
        if incoming.status != 200 {
            let mut body = Vec::new();
            while body.len() < limits::BODY && incoming.more(&mut body).await? {}
            let reply = shown(agent, Ask::ImageExport, incoming.status, body, None);
            return Ok(Answer::Reply(reply));
        }
        let length = incoming.header("content-length").and_then(|length| length.parse().ok());
        let length = match length {
            Some(length) => Length::Known(length),
            None if request.http10 => Length::UntilClose,
            None => Length::Chunked,
        };
        let whole = self.relay(stream, &mut incoming, length, Persistence::of(request)).await;
        if let Err(failed) = &whole {
            agent.report_error(format_args!("an image download was cut: {}", failed.why()));
        }
        Ok(Answer::Written { keep_alive: whole.is_ok() && length != Length::UntilClose })
    }

    /// Writes head and body. After an error the guest's connection must be closed, so that the
    /// guest notices.
    async fn relay(
        &self,
        stream: &Stream,
        incoming: &mut Incoming,
        length: Length,
        persistence: Persistence,
    ) -> Result<(), CallError> {
        let gone = |error: io::Error| CallError::from(format!("the guest client is gone: {error}"));
        let connection = incoming.header("connection").unwrap_or_default();
        let extra: Vec<_> = incoming
            .headers
            .iter()
            .filter(|(name, _)| returns(name) && !lists(connection.as_bytes(), name))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let mut head = String::with_capacity(512);
        let content_type =
            Some(incoming.header("content-type").unwrap_or("application/octet-stream"));
        let head_of = Head { status: 200, content_type, length, persistence, extra: &extra };
        write_reply(&mut head, &head_of)
            .map_err(|_| "a header of the host's cannot be passed on")?;
        self.entry.note(Activity::Writing, now());
        stream.write_all(head.as_bytes()).await.map_err(gone)?;
        self.entry.note(Activity::Served, now());
        let chunked = length == Length::Chunked;
        let mut piece = Vec::new();
        while incoming.more(&mut piece).await? {
            self.entry.note(Activity::Writing, now());
            if chunked {
                let mut size = String::new();
                let _infallible = write_chunk_head(&mut size, piece.len());
                stream.write_all(size.as_bytes()).await.map_err(gone)?;
                piece.extend_from_slice(b"\r\n");
            }
            stream.write_all(&piece).await.map_err(gone)?;
            piece.clear();
            self.entry.note(Activity::Served, now());
        }
        if chunked {
            stream.write_all(LAST_CHUNK).await.map_err(gone)?;
        }
        Ok(())
    }
}

/// Returns the client's answer. A long one is not copied, because there is no room for two.
fn shown(agent: &Agent, ask: Ask, status: u16, mut body: Vec<u8>, etag: Option<String>) -> Reply {
    let (shown, out) = match show_within(agent.flavour, ask, status, &mut body) {
        Some((shown, place)) => {
            body.truncate(place.end);
            body.drain(..place.start);
            if shown.body == Body::Json {
                body.push(b'\n');
            }
            (shown, body)
        }
        None => {
            let mut out = Vec::new();
            let sink = &mut |piece: &[u8]| out.extend_from_slice(piece);
            (show(agent.flavour, ask, status, &body, sink), out)
        }
    };
    let content_type = match shown.body {
        Body::Json => crate::net::serve::JSON,
        Body::Raw => "application/octet-stream",
        Body::Text => TEXT,
    };
    Reply { etag, ..Reply::of(shown.status, content_type, out) }
}

/// Returns a volume's body with the type of its path, if it lacks one (P§5.3).
fn typed(path: &str, body: &[u8]) -> Option<Document> {
    let kind = volume_type(path)?;
    let parsed = Value::parse(body).ok().filter(|parsed| lacks_type(*parsed))?;
    Some(Document::new(body.len() + 32, |json| write_typed(json, parsed, kind)))
}

/// The host's time limit, and what to do while it is unreachable.
fn timeout(ask: Ask) -> (Duration, Retry) {
    match ask {
        Ask::OperationWait => (OPERATION, Retry::Dial),
        Ask::MetaData => (HOST_CALL_TIMEOUT, Retry::Patient),
        Ask::Info
        | Ask::SetState
        | Ask::ConfigKeys
        | Ask::ConfigValue
        | Ask::ImageExport
        | Ask::VolumeList
        | Ask::Json => (HOST_CALL_TIMEOUT, Retry::Dial),
    }
}
