//! The server that LXD or Incus calls (vsock port 8443). TLS accepts only the certificate in
//! `server.crt`: any other caller fails the handshake and never reaches HTTP. The Go agents answer
//! 500 instead (P§3.1).

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::event::{Audience, DEVICE, Posted, adds_nic};
use mote_core::hostapi::host_info::HostPeer;
use mote_core::hostapi::info::{self, write_index, write_info};
use mote_core::hostapi::policy::Capability;
use mote_core::hostapi::route::{self, NoRoute, Route};
use mote_core::http::head::{Framing, Request};
use mote_core::json::{Document, Value};
use mote_core::limits;
use smol::future::{FutureExt, pending, ready};

use crate::agent::host::read_host_info;
use crate::agent::{Agent, error, error_reply, sync, sync_reply};
use crate::built::{self, BoxFuture};
use crate::config::known_host;
use crate::hostapi::{events, exec, mounts, operations, port_forward, sftp};
use crate::leave::LEAVE_LOOK_INTERVAL;
use crate::net::relay::relay;
use crate::net::serve::{
    ACCEPT_AGAIN, Admission, Answer, Refused, Reply, Service, TOO_LONG, serve,
};
use crate::net::stream::Stream;
use crate::net::tls;
use crate::net::tls_error::is_other_certificate;
use crate::runtime::log::audit;
use crate::runtime::{Permit, Semaphore, hex, io_error, log, now, sha256, sleep, within};
use crate::system;
use crate::transport::{Listener, Socket, is_passing};
use crate::workers::report::metrics;
use crate::workers::run;

/// Maximum number of connections; more wait in the listen queue. A running exec has up to five.
const CALLERS: usize = 4096;
/// Time limit of handshakes before a restart in place, which waits for them without accepting more.
const LAST_HANDSHAKES: Duration = Duration::from_millis(1500);
/// How long a long request waits for memory; then: 503. Shorter than a body's deadline.
const ADMIT_WAIT: Duration = Duration::from_secs(3);
/// Maximum size of a report, in bytes: ten times the report of 500 mounts and 500 interfaces.
const LONGEST_REPORT: usize = 4 * 1024 * 1024;

/// Accepts connections on all listeners.
/// Errors: any permanent error of accept(2), or rustls's for an unusable identity.
pub(crate) async fn listen(agent: Rc<Agent>, listeners: Vec<Listener>) -> io::Result<Infallible> {
    let config = agent.identity.server()?;
    let permits = Rc::new(Semaphore::new(CALLERS));
    let mut all: BoxFuture<'static, _> = Box::pin(pending());
    for listener in listeners {
        all = Box::pin(all.or(callers(agent.clone(), listener, config.clone(), permits.clone())));
    }
    all.await
}

async fn callers(
    agent: Rc<Agent>,
    listener: Listener,
    config: tls::Server,
    callers: Rc<Semaphore>,
) -> io::Result<Infallible> {
    loop {
        let permit = callers.clone().take().await;
        while agent.drains.get() {
            sleep(LEAVE_LOOK_INTERVAL).await;
        }
        let socket = accept(&agent, &listener).await?;
        let slot = agent.newcomers.clone().take().await;
        let (task, config) = (agent.clone(), config.clone());
        agent.spawn(async move {
            serve_one(&task, socket, config, slot).await;
            drop(permit);
        });
    }
}

/// Accepts one connection; retries after a temporary error.
async fn accept(agent: &Agent, listener: &Listener) -> io::Result<Socket> {
    loop {
        match listener.accept().await {
            Ok(socket) => return Ok(socket),
            Err(error) if is_passing(&error) => {
                agent.shortage(&format!("cannot accept: {error}"));
                sleep(ACCEPT_AGAIN).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn serve_one(agent: &Rc<Agent>, socket: Socket, config: tls::Server, slot: Permit) {
    let limit = if agent.will_reexec.get() { LAST_HANDSHAKES } else { limits::HEAD_TIMEOUT };
    let accepted = within(limit, Stream::accept(socket, config, &slot)).await;
    drop(slot);
    let stream = match accepted {
        Some(Ok(stream)) => stream,
        Some(Err(error)) => {
            if is_other_certificate(&error) {
                agent.unknown_caller();
            }
            log::debug(format_args!("a caller was refused: {error}"));
            return;
        }
        None => {
            log::debug(format_args!("a caller did not finish its handshake"));
            return;
        }
    };
    let Some(peer) = stream.peer(|presented| agent.identity.receipt(presented)) else {
        // Unreachable: the handshake refuses any other certificate.
        return;
    };
    agent.heard();
    // Before a restart, the agent waits for the first answer on each connection.
    let act = Cell::new(agent.host_requests.try_take());
    serve(stream, &HostService { agent: agent.clone(), act, peer }).await;
    // The vsock driver resets all connections when the VM is migrated or restored.
    agent.woken.raise();
}

struct HostService {
    agent: Rc<Agent>,
    /// Held until the first answer begins.
    act: Cell<Option<Permit>>,
    #[expect(dead_code, reason = "held as proof that the caller was checked")]
    peer: HostPeer,
}

impl Service for HostService {
    fn longest_body(&self) -> usize {
        limits::HOST_SHORT
    }

    fn admit<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<Admission, Refused>> {
        Box::pin(self.reserve(request))
    }

    fn answer<'a>(
        &'a self,
        _: &'a Stream,
        request: &'a Request<'_>,
        body: &'a [u8],
    ) -> BoxFuture<'a, Answer> {
        Box::pin(self.answer_in_turn(request, body))
    }

    fn refuse(&self, status: u16, text: &str) -> Reply {
        error_reply(status, text)
    }
}

impl HostService {
    /// Reserves memory for a body. An exec request of unknown length gets no higher limit.
    async fn reserve(&self, request: &Request<'_>) -> Result<Admission, Refused> {
        let agent = &self.agent;
        let asked = route::route(agent.flavour, request.method, request.path);
        let is_exec =
            built::EXEC && asked == Ok(Route::Exec) && agent.policy.allows(Capability::Exec);
        let most = match request.framing {
            Framing::Length(length) => {
                let limit = if is_exec { limits::EXEC_BODY } else { limits::HOST_BODY };
                let length = usize::try_from(length).ok().filter(|length| *length <= limit);
                length.ok_or(TOO_LONG)?
            }
            Framing::None | Framing::Chunked | Framing::UntilClose => limits::HOST_BODY,
        };
        match within(ADMIT_WAIT, agent.operations.memory.clone().take_many(most)).await {
            share @ Some(_) => Ok(Admission { most, share }),
            None => Err((503, "Too many long requests at once")),
        }
    }

    async fn answer_in_turn(&self, request: &Request<'_>, body: &[u8]) -> Answer {
        let agent = &self.agent;
        let route = match route::route(agent.flavour, request.method, request.path) {
            Ok(route) => route,
            Err(NoRoute::Path) => return Answer::Reply(Reply::text(404, "404 page not found")),
            Err(NoRoute::Verb) => {
                return error(404, &format!("Method \"{}\" not found", request.method_text));
            }
            Err(why) => {
                let (status, text) = why.reply();
                return error(status, text);
            }
        };
        // Before a restart, the agent waits for the end of the answer.
        let act = self.act.take().or_else(|| agent.host_requests.try_take());
        if matches!(route, Route::Exec | Route::Sftp | Route::PortForward) {
            audit::turn().await;
            if built::RESTORE {
                agent.settled().await;
            }
        }
        let mut answer = self.answer_route(route, request, body).await;
        if let Answer::Reply(reply) = &mut answer {
            reply.request = act;
        }
        answer
    }

    /// Not an async function, which would link the code of routes that are not built.
    fn answer_route<'a>(
        &'a self,
        route: Route,
        request: &'a Request<'_>,
        body: &'a [u8],
    ) -> BoxFuture<'a, Answer> {
        let agent = &self.agent;
        if let Some(capability) = route.needs()
            && !agent.policy.allows(capability)
            // `exec::start` checks the command.
            && !(route == Route::Exec && agent.policy.allows(Capability::Power))
        {
            return at_once(denied(agent, &capability.name()));
        }
        let id = route::operation(request.path);
        match route {
            Route::Index => at_once(sync(Document::new(16, write_index).value())),
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
            Route::Sftp if built::FILES => at_once(sftp::answer(agent, request)),
            Route::State if built::STATE => Box::pin(report(agent, "state")),
            Route::Metrics if built::METRICS => Box::pin(metrics(agent)),
            Route::PortForward if built::PORT_FORWARD => {
                Box::pin(port_forward::answer(agent, request, body))
            }
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

fn at_once(answer: Answer) -> BoxFuture<'static, Answer> {
    Box::pin(ready(answer))
}

fn info(agent: &Agent) -> Answer {
    let metadata = system::described(|machine| {
        Document::new(512, |json| write_info(json, agent.flavour, machine))
    });
    let metadata = metadata.value();
    let mut reply = sync_reply(metadata);
    reply.header = Some(("ETag", format!("\"{}\"", hex(&sha256(metadata.raw().as_bytes())))));
    Answer::Reply(reply)
}

/// `GET /1.0/metrics` (P§4.6).
async fn metrics(agent: &Agent) -> Answer {
    match metrics::without_worker(agent.flavour, &agent.options.root) {
        Some(report) => reported(agent, "metrics", Ok(report)),
        None => report(agent, "metrics").await,
    }
}

/// `GET /1.0/state` (P§4.5), and metrics. A worker process makes them, because reading may hang.
async fn report(agent: &Agent, what: &str) -> Answer {
    reported(agent, what, run::report(agent, what, LONGEST_REPORT).await)
}

fn reported(agent: &Agent, what: &str, report: io::Result<Vec<u8>>) -> Answer {
    let report = report.map_err(|why| why.to_string());
    match report.and_then(|json| Document::read(json).map_err(|why| why.to_string())) {
        Ok(report) => sync(report.value()),
        Err(why) => {
            agent.report_error(format_args!("no {what}: {why}"));
            error(500, &format!("Failed getting {what}: {why}"))
        }
    }
}

/// `PUT /1.0` (P§3.3): takes the host info, verifies it with a call to the host, and answers
/// within the host's limit of 3 s.
async fn connect(agent: &Rc<Agent>, body: &[u8]) -> Answer {
    let (host, guest_api) = match read_host_info(body) {
        Ok(read) => read,
        Err(why) => {
            agent.report_error(format_args!("the host's PUT is unusable: {why}"));
            return error(500, &why);
        }
    };
    log::info(format_args!("host address {} (from PUT)", host.address));
    known_host::keep(&agent.options, body);
    let attempt = agent.status(|status| status.put_started(now(), host));
    // Before the verification, which a newer PUT may overtake, and even if it fails: the agent's
    // next attempt may succeed before the host's next PUT.
    agent.allow_devlxd(guest_api);
    match agent.verify(host, attempt).await {
        Ok(host_state) => {
            // In a separate task: the host waits for this answer and may hold a lock until then.
            let task = agent.clone();
            agent.spawn(async move { task.replay_ready(host_state.as_deref()).await });
            sync(Value::EMPTY)
        }
        Err(failed) => error(500, &format!("{}{}", info::unverified(agent.flavour), failed.why())),
    }
}

/// `POST /1.0/events` (P§4.3): publishes the event. A device event also mounts or unmounts a share,
/// or renames NICs.
async fn post_event(agent: &Rc<Agent>, body: &[u8]) -> Answer {
    let event = match Posted::parse(body) {
        Ok(event) => event,
        Err(why) => return error(500, &format!("Invalid event: {why}")),
    };
    agent.events.post(&event.kind, event.metadata).await;
    if built::RESOURCES && event.kind == DEVICE && adds_nic(event.metadata) {
        agent.nic_added.raise();
    }
    if built::MOUNTS && event.kind == DEVICE {
        let mounted: BoxFuture<'_, _> = Box::pin(mounts::event(agent, event.whole));
        if let Some(why) = mounted.await {
            return error(500, &why);
        }
    }
    sync(Value::NULL)
}

/// Relays a connection until either side ends it or the policy changes. `allowed` is the policy's
/// change count when the connection was allowed.
pub(crate) async fn relay_while_allowed(
    agent: &Agent,
    allowed: u64,
    stream: &Stream,
    socket: Socket,
) -> io::Result<()> {
    let changed = async {
        agent.policy.changed.after(allowed).await;
        Err(io_error("the guest's policy has changed"))
    };
    changed.or(relay(stream, socket)).await
}

/// Returns 403 with the reason, and logs it.
pub(crate) fn denied(agent: &Agent, what: &dyn Display) -> Answer {
    // Say so: an invalid file denies everything, including what would be needed to repair it.
    let broken = if agent.policy.is_broken.get() { ": its file is invalid" } else { "" };
    let why = format!("The guest's policy does not allow {what}{broken}");
    agent.refused(&why);
    error(403, &why)
}
