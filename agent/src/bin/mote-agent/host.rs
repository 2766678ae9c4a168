//! The host's side: listens where LXD or Incus calls (vsock 8443), behind TLS that only the one
//! certificate in `server.crt` gets through. A caller with any other is refused in the handshake,
//! so it reaches no HTTP at all; the real agents answer such a caller 500 (P§3.1).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::ready;
use mote_agent::hostapi::info::{Machine, write_error, write_info, write_sync};
use mote_agent::hostapi::route::{self, NoRoute, Route};
use mote_agent::hostpeer::HostPeer;
use mote_agent::http::head::Request;
use mote_agent::json;
use mote_agent::limits;
use mote_agent::peer::Told;
use mote_agent::policy::Capability;
use rustls::ServerConfig;

use crate::agent::{Agent, json_text};
use crate::built::Later;
use crate::clock::{now, within};
use crate::events::{self, Audience, stamped};
use crate::exchange::{Answer, Reply, Service, serve};
use crate::host_call::Failed;
use crate::signal::Signal;
use crate::socket::Socket;
use crate::stream::Stream;
use crate::{built, exec, files, forward, log, mounts, operations, worker};

/// Callers served at once; further ones wait in the kernel. An exec takes up to five of them, and
/// keeps them.
const CALLERS: usize = 4096;
/// Longest report, bytes: 500 mounts and as many interfaces are a tenth of it.
const LONGEST_REPORT: usize = 4 * 1024 * 1024;

/// Accepts callers for ever.
///
/// # Errors
/// When the listener itself is broken.
pub(crate) async fn listen(
    agent: Rc<Agent>,
    listener: Socket,
) -> std::io::Result<std::convert::Infallible> {
    let config = agent.identity.server().map_err(std::io::Error::other)?;
    let places = Rc::new(Places::new(CALLERS));
    loop {
        let place = places.clone().take().await;
        let socket = accept(&agent, &listener).await?;
        let (task, config) = (agent.clone(), config.clone());
        agent.spawn(async move {
            serve_one(&task, socket, config).await;
            drop(place);
        });
    }
}

/// Accepts, and survives what passes by itself.
async fn accept(agent: &Agent, listener: &Socket) -> std::io::Result<Socket> {
    loop {
        match agent.transport.accept(listener).await {
            Ok(socket) => return Ok(socket),
            Err(error) if is_passing(&error) => {
                agent.trouble(&format!("cannot accept: {error}"));
                crate::clock::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Out of descriptors or memory for now, or the caller left while we accepted.
pub(crate) fn is_passing(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::CONNABORTED,
        Errno::CONNRESET,
        Errno::INTR,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| passing.iter().any(|errno| errno.raw_os_error() == code))
}

async fn serve_one(agent: &Rc<Agent>, socket: Socket, config: Arc<ServerConfig>) {
    let stream = match within(limits::HEAD_TIMEOUT, Stream::accept(socket, config)).await {
        Some(Ok(stream)) => stream,
        Some(Err(error)) => {
            log::debug(format_args!("a caller was refused: {error}"));
            return;
        }
        None => {
            log::debug(format_args!("a caller did not finish its handshake"));
            return;
        }
    };
    let Ok(peer) = stream.peer(|presented| agent.identity.receipt(presented)) else {
        // The handshake has refused it already.
        return;
    };
    serve(stream, &HostService { agent: agent.clone(), peer }).await;
}

/// Places to be served, a bounded number.
pub(crate) struct Places {
    free: Cell<usize>,
    freed: Signal,
}

/// One place; given back when dropped.
pub(crate) struct Place(Rc<Places>);

impl Places {
    /// That many.
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Cell::new(count), freed: Signal::default() }
    }

    /// Waits for one.
    pub(crate) async fn take(self: Rc<Self>) -> Place {
        self.freed.until(|| self.try_take()).await
    }

    /// One, if there is one.
    pub(crate) fn try_take(self: &Rc<Self>) -> Option<Place> {
        self.free.set(self.free.get().checked_sub(1)?);
        Some(Place(self.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
        self.0.freed.raise();
    }
}

/// Answers the host. Cannot be made without the receipt.
struct HostService {
    agent: Rc<Agent>,
    #[expect(dead_code, reason = "held as proof: whoever has it has checked the caller")]
    peer: HostPeer,
}

impl Service for HostService {
    // The command and environment of an exec can be long.
    const BODY: usize = limits::HOST_BODY;

    async fn answer(&self, _: &Stream, request: &Request<'_>, body: &[u8]) -> Answer {
        let agent = &self.agent;
        let route = match route::route(agent.flavour, request.method, request.path) {
            Ok(route) => route,
            Err(NoRoute::Path) => return Answer::Reply(Reply::text(404, "404 page not found")),
            Err(NoRoute::Method) => return error(501, "Not Implemented"),
            Err(NoRoute::Verb) => {
                return error(404, &format!("Method \"{}\" not found", request.method_text));
            }
            Err(NoRoute::Encoding) => return error(400, "Invalid percent-encoding in path"),
        };
        self.answer_route(route, request, body).await
    }

    fn refuse(&self, status: u16, text: &str) -> Reply {
        error_reply(status, text)
    }
}

impl HostService {
    /// Not async itself, so that nothing is linked for a route that is not built.
    fn answer_route<'a>(
        &'a self,
        route: Route,
        request: &'a Request<'_>,
        body: &'a [u8],
    ) -> Later<'a, Answer> {
        let agent = &self.agent;
        if let Some(capability) = route.needs()
            && !agent.policy.allows(capability)
        {
            return at_once(refused(capability));
        }
        let id = route::operation(request.path);
        match route {
            Route::Index => at_once(sync("[\"/1.0\"]")),
            Route::Info => at_once(info(agent)),
            Route::Connect => Box::pin(connect(agent, body)),
            Route::Events => at_once(events::listen(agent, request, Audience::Host)),
            Route::PostEvent => Box::pin(post_event(agent, body)),
            Route::Operations => at_once(operations::list(agent, request)),
            Route::Operation => at_once(operations::show(agent, id)),
            Route::CancelOperation if built::EXEC => Box::pin(operations::cancel(agent, id)),
            Route::WaitOperation if built::EXEC => Box::pin(operations::wait(agent, id, request)),
            Route::CancelOperation | Route::WaitOperation => at_once(operations::show(agent, id)),
            Route::Exec if built::EXEC => at_once(exec::start(agent, body)),
            Route::OperationSocket if built::EXEC => at_once(exec::arrive(agent, id, request)),
            Route::Sftp if built::FILES => at_once(files::answer(agent, request)),
            Route::State if built::STATE => Box::pin(report(agent, "state")),
            Route::Metrics if built::METRICS => Box::pin(report(agent, "metrics")),
            Route::PortForward if built::PORT_FORWARD => Box::pin(forward::answer(request, body)),
            Route::Exec
            | Route::OperationSocket
            | Route::Sftp
            | Route::State
            | Route::Metrics
            | Route::PortForward => {
                let what = route.needs().map_or("exec", Capability::name);
                at_once(error(501, &format!("This build of the agent does not serve {what}")))
            }
        }
    }
}

fn at_once(answer: Answer) -> Later<'static, Answer> {
    Box::pin(ready(answer))
}

fn info(agent: &Agent) -> Answer {
    let uname = rustix::system::uname();
    let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
    let machine = Machine {
        architecture: &text(uname.machine()),
        hostname: &text(uname.nodename()),
        release: &text(uname.release()),
        pid: std::process::id(),
    };
    let mut metadata = String::with_capacity(512);
    let _infallible = write_info(&mut metadata, agent.flavour, &machine);
    let mut reply = sync_reply(&metadata);
    let digest = ring::digest::digest(&ring::digest::SHA256, metadata.as_bytes());
    reply.etag = Some(hex(digest.as_ref()));
    Answer::Reply(reply)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(bytes.len() * 2 + 2);
    out.push('"');
    for byte in bytes {
        let _infallible = write!(out, "{byte:02x}");
    }
    out.push('"');
    out
}

/// `GET /1.0/state` and `/1.0/metrics` (P§4.5, 4.6), made by a process that may hang.
async fn report(agent: &Agent, what: &str) -> Answer {
    match worker::report(agent, what, LONGEST_REPORT).await {
        Ok(json) => sync(String::from_utf8_lossy(&json).trim_end()),
        Err(why) => {
            agent.trouble(&format!("no {what}: {why}"));
            error(500, &format!("Failed getting {what}: {why}"))
        }
    }
}

/// `PUT /1.0` (P§3.3): takes over what is told, calls back to check it, answers in the host's 3 s.
async fn connect(agent: &Rc<Agent>, body: &[u8]) -> Answer {
    let told = match Told::parse(body) {
        Ok(told) => told,
        Err(why) => {
            agent.trouble(&format!("the host's PUT is unusable: {why}"));
            return error(400, &why.to_string());
        }
    };
    let link = match agent.take(&told) {
        Ok(link) => link,
        Err(why) => {
            agent.trouble(&format!("the host's PUT is unusable: {why}"));
            return error(400, &why);
        }
    };
    log::info(format_args!("told {}:{} by PUT", link.address.cid, link.address.port));
    let attempt = agent.status(|status| status.put_started(now(), link.address));
    let verified = agent.verify(&link).await;
    agent.status(|status| status.verified(now(), attempt, verified.is_ok()));
    match verified {
        Ok(host_state) => {
            agent.allow_devlxd(told.guest_api);
            // After the answer: the host waits for it, and may hold a lock meanwhile.
            let task = agent.clone();
            agent.spawn(async move { task.replay_ready(host_state.as_deref()).await });
            sync("{}")
        }
        Err(Failed(why)) => {
            agent.trouble(&format!("lost host: {why}"));
            error(500, &format!("Failed verifying connection to LXD server: {why}"))
        }
    }
}

/// `POST /1.0/events` (P§4.3): hands it to the listeners, and does what it says about shares. What
/// goes wrong there is no fault of the event's.
async fn post_event(agent: &Rc<Agent>, body: &[u8]) -> Answer {
    let member = |key| json::member(body, key).ok().flatten();
    if let Err(why) = json::check(body) {
        return error(400, &format!("Invalid event: {why}"));
    }
    let Some(kind) = member("type").and_then(json_text) else {
        return error(400, "Invalid event: no type");
    };
    let metadata = member("metadata").unwrap_or(b"null");
    let Ok(metadata) = std::str::from_utf8(metadata) else {
        return error(400, "Invalid event: not UTF-8");
    };
    agent.events.publish(&kind, &stamped(&kind, metadata));
    if built::MOUNTS && kind == "device" {
        let mounted: Later<'_> = Box::pin(mounts::event(agent, body));
        mounted.await;
    }
    sync("null")
}

/// A sync reply.
pub(crate) fn sync(metadata: &str) -> Answer {
    Answer::Reply(sync_reply(metadata))
}

fn sync_reply(metadata: &str) -> Reply {
    let mut body = String::with_capacity(metadata.len() + 128);
    let _infallible = write_sync(&mut body, metadata);
    Reply::json(200, body)
}

/// The guest's owner has switched it off; the host shows this text to its user.
fn refused(capability: Capability) -> Answer {
    error(403, &format!("The guest's policy does not allow {}", capability.name()))
}

/// An error in the envelope.
pub(crate) fn error(status: u16, text: &str) -> Answer {
    Answer::Reply(error_reply(status, text))
}

fn error_reply(status: u16, text: &str) -> Reply {
    let mut body = String::with_capacity(text.len() + 128);
    let _infallible = write_error(&mut body, status, text);
    Reply::json(status, body)
}
