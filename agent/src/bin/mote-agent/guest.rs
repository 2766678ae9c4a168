//! The guest's side: the devlxd socket, switched on and off by the host while we run (P§5.1), and
//! the answers on it. Everything but the index and the events is asked of the host.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::FutureExt;
use futures_lite::future::pending;
use mote_agent::devlxd::answer::{Body, show};
use mote_agent::devlxd::forward::{forwards, missing_type, returns, write_target};
use mote_agent::devlxd::route::{Ask, NoRoute, Route, route};
use mote_agent::flavour::Flavour;
use mote_agent::http::head::{Method, Request};
use mote_agent::http::reply::{Head, LAST_CHUNK, Length, write_chunk_head, write_reply};
use mote_agent::json;
use mote_agent::limits;
use mote_agent::ready::ReadyState;

use crate::agent::{Agent, PATIENCE, json_text};
use crate::events::{self, Audience};
use crate::exchange::{Answer, Reply, Service, TEXT, serve};
use crate::host::{Place, Places, is_passing};
use crate::host_call::{Call, Failed, Incoming, Retry, open};
use crate::log;
use crate::socket::{self, Socket};
use crate::stream::Stream;

/// Guest clients served at once; further ones wait in the kernel until one leaves. Every client is bounded
/// in time but an event listener, which has a place among the listeners instead.
const CLIENTS: usize = 128;
/// How long a guest may wait for a host operation (`/1.0/operations/{id}/wait`).
const OPERATION: Duration = Duration::from_secs(3600);
/// Below the root: what an application said last, for an agent that is started anew.
pub(crate) const READY: &str = "run/mote/ready";
/// Between two attempts to open the socket, say because `/dev` is not there yet.
const REOPEN: Duration = Duration::from_secs(1);

/// Opens and closes the socket as the host says, for ever.
pub(crate) async fn run(agent: Rc<Agent>) -> std::convert::Infallible {
    let places = Rc::new(Places::new(CLIENTS));
    loop {
        let seen = agent.devlxd_changed.seen();
        if !agent.devlxd.get() {
            agent.devlxd_changed.after(seen).await;
            continue;
        }
        let path = agent.options.root.join(agent.flavour.socket_path().trim_start_matches('/'));
        match bind(&agent, &path) {
            Ok(listener) => {
                log::info(format_args!("devlxd on {}", path.display()));
                agent.status_changed.raise();
                let off = agent.devlxd_changed.after(seen);
                accept(&agent, &listener, &places).or(off).await;
                // The name goes first: whoever finds it can connect.
                let _gone = std::fs::remove_file(&path);
                drop(listener);
                if !agent.devlxd.get() {
                    log::info(format_args!("devlxd off"));
                    agent.status_changed.raise();
                }
            }
            Err(error) => {
                agent.trouble(&format!("cannot open {}: {error}", path.display()));
                crate::clock::sleep(REOPEN).await;
            }
        }
    }
}

/// Directory 0755, socket 0600 (P§5.1).
fn bind(agent: &Agent, path: &Path) -> io::Result<Socket> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755))?;
    let listener = socket::listen_unix(path)?;
    if agent.flavour == Flavour::Incus {
        link_lxd(directory)?;
    }
    Ok(listener)
}

/// cloud-init knows `/dev/lxd/sock` only, so Incus has `/dev/lxd` → `/dev/incus` (P§5.1).
fn link_lxd(incus: &Path) -> io::Result<()> {
    let link: PathBuf = incus.with_file_name("lxd");
    match symlink("incus", &link) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn accept(agent: &Rc<Agent>, listener: &Socket, places: &Rc<Places>) {
    loop {
        let place = places.clone().take().await;
        match socket::accept(listener).await {
            Ok(socket) => {
                let guest = Guest { agent: agent.clone(), place: Cell::new(Some(place)) };
                agent.spawn(async move { serve(Stream::plain(socket), &guest).await });
            }
            Err(error) => {
                agent.trouble(&format!("cannot accept a guest client: {error}"));
                if !is_passing(&error) {
                    return;
                }
                crate::clock::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers a guest client.
struct Guest {
    agent: Rc<Agent>,
    place: Cell<Option<Place>>,
}

impl Service for Guest {
    const BODY: usize = limits::BODY;

    async fn answer(&self, stream: &Stream, request: &Request<'_>, body: &[u8]) -> Answer {
        let agent = &self.agent;
        if !agent.devlxd.get() {
            // A connection from before it was switched off.
            return Answer::Reply(Reply::text(403, "Forbidden"));
        }
        match route(agent.flavour, request.method, request.path) {
            Ok(Route::Index) => Answer::Reply(Reply::json(200, &b"[\"/1.0\"]\n"[..])),
            Ok(Route::Events) => {
                let answer = events::listen(agent, request, Audience::Guest);
                if matches!(answer, Answer::Upgrade(_)) {
                    drop(self.place.take());
                }
                answer
            }
            Ok(Route::Ask(ask)) => match forward(agent, stream, request, ask, body).await {
                Ok(answer) => answer,
                // 500, and nothing else: cloud-init tries again on that only (P§5.4).
                Err(Failed(why)) => {
                    let text = format!("Failed connecting to devLXD over vsock: {why}");
                    Answer::Reply(Reply::text(500, &text))
                }
            },
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

    fn refuse(&self, status: u16, text: &str) -> Reply {
        Reply::text(status, text)
    }
}

async fn forward(
    agent: &Agent,
    stream: &Stream,
    request: &Request<'_>,
    ask: Ask,
    body: &[u8],
) -> Result<Answer, Failed> {
    let mut target = String::with_capacity(request.path.len() + 32);
    let _infallible = write_target(&mut target, ask, request.path, request.query);
    let mut extra = Vec::new();
    for (name, value) in request.headers.iter() {
        if forwards(ask, name, value) {
            let value = std::str::from_utf8(value);
            extra.push((name, value.map_err(|_| Failed("a header is not UTF-8".into()))?));
        }
    }
    if !body.is_empty() {
        extra.push(("Content-Type", "application/json"));
    }
    let typed = missing_type(request.path, body)
        .filter(|_| request.method == Method::Post)
        .and_then(|kind| with_type(body, kind));
    let body = typed.as_deref().unwrap_or(body);
    let method = if request.method == Method::Head { "GET" } else { request.method_text };
    let call = Call {
        method,
        target: &target,
        body: (request.method != Method::Get && request.method != Method::Head).then_some(body),
        extra: &extra,
        patience: if ask == Ask::OperationWait { OPERATION } else { PATIENCE },
        retry: if ask == Ask::MetaData { Retry::Patient } else { Retry::Dial },
    };
    if ask == Ask::ImageExport && request.method == Method::Get {
        return export(agent, stream, request, &call).await;
    }
    // What changes something is done, though nobody may hear of it any more.
    let left = async {
        if ask != Ask::OperationWait {
            return pending().await;
        }
        stream.gone().await;
        Err(Failed("the guest client is gone".into()))
    };
    let reply = agent.ask(&call).or(left).await?;
    if ask == Ask::SetState && reply.status == 200 {
        remember(agent, body);
    }
    Ok(Answer::Reply(shown(agent, ask, reply.status, &reply.body, reply.etag)))
}

fn shown(agent: &Agent, ask: Ask, status: u16, body: &[u8], etag: Option<String>) -> Reply {
    let mut out = Vec::with_capacity(body.len());
    let shown = show(agent.flavour, ask, status, body, &mut |piece| out.extend_from_slice(piece));
    let content_type = match shown.body {
        Body::Json => crate::exchange::JSON,
        Body::Raw => "application/octet-stream",
        Body::Text => TEXT,
    };
    Reply { status: shown.status, content_type, etag, location: None, body: out }
}

/// `body` with a `type` put in front of its members.
fn with_type(body: &[u8], kind: &str) -> Option<Vec<u8>> {
    let rest = body.trim_ascii_start().strip_prefix(b"{")?;
    let mut out = String::from("{\"type\":");
    let _infallible = json::quote(&mut out, kind);
    if !rest.trim_ascii_start().starts_with(b"}") {
        out.push(',');
    }
    let mut out = out.into_bytes();
    out.extend_from_slice(rest);
    Some(out)
}

/// Remembers the state that the host has just accepted, for its next restart (seeds: Ready).
fn remember(agent: &Agent, body: &[u8]) {
    let state = json::member(body, "state").ok().flatten().and_then(json_text);
    let Some(state) = state.as_deref().and_then(ReadyState::parse) else { return };
    agent.ready.borrow_mut().set(state);
    log::info(format_args!("an application says {}", state.name()));
    let path = agent.options.root.join(READY);
    if let Err(error) = crate::report::write_atomically(&path, state.name().as_bytes()) {
        agent.trouble(&format!("cannot write {}: {error}", path.display()));
    }
    agent.status_changed.raise();
}

/// Passes an image through, of any size, one piece at a time.
async fn export(
    agent: &Agent,
    stream: &Stream,
    request: &Request<'_>,
    call: &Call<'_>,
) -> Result<Answer, Failed> {
    let link = agent.known_link()?;
    let incoming = open(&agent.transport, &link, call).await;
    agent.judge(incoming.as_ref().err());
    let mut incoming = incoming?;
    if incoming.status != 200 {
        let mut body = Vec::new();
        while body.len() < limits::BODY && incoming.more(&mut body).await? {}
        let reply = shown(agent, Ask::ImageExport, incoming.status, &body, None);
        return Ok(Answer::Reply(reply));
    }
    let length = incoming.header("content-length").and_then(|length| length.parse().ok());
    let length = match length {
        Some(length) => Length::Known(length),
        None if request.http10 => Length::UntilClose,
        None => Length::Chunked,
    };
    let whole = relay(stream, &mut incoming, length, !request.keep_alive).await;
    if let Err(Failed(why)) = &whole {
        agent.trouble(&format!("an image download was cut: {why}"));
    }
    Ok(Answer::Written { keep_alive: whole.is_ok() && length != Length::UntilClose })
}

/// Writes head and body; an error means that the guest's connection must be cut too, so that it
/// notices.
async fn relay(
    stream: &Stream,
    incoming: &mut Incoming,
    length: Length,
    close: bool,
) -> Result<(), Failed> {
    let gone = |error: io::Error| Failed(format!("the guest client is gone: {error}"));
    let extra: Vec<_> = incoming
        .headers
        .iter()
        .filter(|(name, _)| returns(name))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut head = String::with_capacity(512);
    let content_type = Some(incoming.header("content-type").unwrap_or("application/octet-stream"));
    let close = close || length == Length::UntilClose;
    write_reply(&mut head, &Head { status: 200, content_type, length, close, extra: &extra })
        .map_err(|_| Failed("a header of the host's cannot be passed on".into()))?;
    stream.write_all(head.as_bytes()).await.map_err(gone)?;
    let chunked = length == Length::Chunked;
    let mut piece = Vec::new();
    while incoming.more(&mut piece).await? {
        if chunked {
            let mut size = String::new();
            let _infallible = write_chunk_head(&mut size, piece.len());
            stream.write_all(size.as_bytes()).await.map_err(gone)?;
            piece.extend_from_slice(b"\r\n");
        }
        stream.write_all(&piece).await.map_err(gone)?;
        piece.clear();
    }
    if chunked {
        stream.write_all(LAST_CHUNK).await.map_err(gone)?;
    }
    Ok(())
}
