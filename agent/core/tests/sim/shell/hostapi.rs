//! The server that the host calls, as in `hostapi/server.rs` and its neighbours.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::event::{OPERATION, Posted};
use mote_core::hostapi::host_info::HostInfo;
use mote_core::hostapi::host_peer::authenticate;
use mote_core::hostapi::info::{Machine, write_error, write_index, write_info, write_sync};
use mote_core::hostapi::operation::{self, State};
use mote_core::hostapi::route::{self, Route, route};
use mote_core::http::head::Request;
use mote_core::http::query::query;
use mote_core::json::{Document, Value};
use mote_core::limits;

use super::agent::{Agent, Operation};
use super::host_call::OURS;
use super::serve::{Answer, Reply, Service, serve};
use crate::host::calls::{AGENT, HOST_CLIENT};
use crate::machine::executor::{MILLI, Micros, SECOND, Zone};
use crate::machine::handshake::Hello;
use crate::machine::net::Stream;
use crate::machine::wait::{Signal, sleep, within};

/// How long an operation can be asked for after its end.
const KEPT: Micros = 5 * SECOND;
/// Most events that wait for one listener.
const QUEUED: usize = 512;

/// Accepts the host's connections.
pub(crate) async fn run(agent: Rc<Agent>) {
    let listener = agent.around.net.listen(AGENT);
    loop {
        let stream = listener.accept().await;
        let task = agent.clone();
        agent.spawn(async move { serve_one(&task, stream).await });
    }
}

async fn serve_one(agent: &Rc<Agent>, stream: Stream) {
    let sim = agent.sim().clone();
    let shake = async {
        let theirs = Hello::receive(&stream).await.ok()?;
        let shown = theirs.certificate.to_le_bytes();
        authenticate(Some(&shown), &HOST_CLIENT.to_le_bytes()).ok()?;
        Hello { certificate: OURS, ticket: 0 }.send(&stream).await.ok()
    };
    let limit = Micros::try_from(limits::HEAD_TIMEOUT.as_micros()).expect("a short time");
    if within(&sim, Zone::Guest, limit, shake).await.flatten().is_some() {
        serve(&sim, stream, &Host { agent: agent.clone() }).await;
    }
}

struct Host {
    agent: Rc<Agent>,
}

fn sync(metadata: Value<'_>) -> Reply {
    Reply::json(200, Document::new(256, |json| write_sync(json, metadata)).line())
}

fn error(status: u16, text: &str) -> Reply {
    Reply::json(status, Document::new(256, |json| write_error(json, status, text)).line())
}

impl Service for Host {
    const BODY: usize = limits::HOST_BODY;

    async fn answer(&self, _: &Stream, request: &Request<'_>, body: &[u8]) -> Answer {
        Answer::Reply(self.reply(request, body).await)
    }

    fn refuse(&self, status: u16, text: &str) -> Reply {
        error(status, text)
    }
}

impl Host {
    async fn reply(&self, request: &Request<'_>, body: &[u8]) -> Reply {
        let agent = &self.agent;
        let Ok(found) = route(agent.around.flavour, request.method, request.path) else {
            return error(404, "not found");
        };
        if found.needs().is_some_and(|needed| !agent.around.policy.allows(needed)) {
            return error(403, "The guest's policy does not allow that");
        }
        let id = route::operation(request.path);
        match found {
            Route::Index => sync(Document::new(16, write_index).value()),
            Route::Info => {
                let machine = Machine { architecture: "x", hostname: "v", release: "6", pid: 1 };
                let flavour = agent.around.flavour;
                sync(Document::new(512, |json| write_info(json, flavour, &machine)).value())
            }
            Route::Connect => connect(agent, body).await,
            Route::PostEvent => match Posted::parse(body) {
                Ok(event) => {
                    agent.publish(&event.kind, event.metadata);
                    sync(Value::NULL)
                }
                Err(why) => error(500, &why.to_string()),
            },
            Route::Exec => agent.begin(),
            Route::WaitOperation => wait(agent, id, request).await,
            Route::State | Route::Metrics => sync(Value::EMPTY),
            Route::Events
            | Route::Operations
            | Route::Operation
            | Route::CancelOperation
            | Route::OperationSocket
            | Route::PortForward
            | Route::Sftp => error(501, "not simulated"),
        }
    }
}

/// `PUT /1.0`: adopts the host info and verifies it before the answer.
async fn connect(agent: &Rc<Agent>, body: &[u8]) -> Reply {
    let info = match HostInfo::parse(body) {
        Ok(info) => info,
        Err(why) => return error(500, &why.to_string()),
    };
    let link = agent.take(&info);
    *agent.around.run_dir.known_host.borrow_mut() = Some(body.to_vec());
    let now = agent.now();
    let attempt = agent.status(|status| status.put_started(now, link.address));
    let verified = agent.verify(&link).await;
    let now = agent.now();
    agent.status(|status| status.verified(now, attempt, verified.is_ok()));
    agent.allow_devlxd(info.guest_api);
    match verified {
        Ok(host_state) => {
            let task = agent.clone();
            agent.spawn(async move { task.replay_ready(host_state.as_deref()).await });
            sync(Value::EMPTY)
        }
        Err(why) => error(500, why.0),
    }
}

/// `GET /1.0/operations/{id}/wait`.
async fn wait(agent: &Rc<Agent>, id: &str, request: &Request<'_>) -> Reply {
    let found = agent.operations.borrow().iter().find(|one| one.id == id).cloned();
    let Some(operation) = found else { return error(404, "no such operation") };
    let seconds = query(request.query, "timeout").and_then(|text| text.parse::<u64>().ok());
    let ended = async {
        loop {
            let seen = operation.changed.seen();
            if operation.state.get().is_final() {
                return;
            }
            operation.changed.after(seen).await;
        }
    };
    let limit = seconds.unwrap_or(3600) * SECOND;
    match within(agent.sim(), Zone::Guest, limit, ended).await {
        Some(()) => sync(agent.show(&operation).value()),
        None => error(500, "context deadline exceeded"),
    }
}

impl Agent {
    /// Queues an event for all who may hear it.
    fn publish(&self, kind: &str, metadata: Value<'_>) {
        let event = Document::new(128, |json| {
            json.begin_object();
            json.pair("type", kind);
            json.key("metadata");
            json.value(metadata);
            json.end_object();
        });
        let event: Rc<str> = event.value().raw().into();
        for hearer in self.hearers.borrow().iter() {
            let mut queue = hearer.queue.borrow_mut();
            if hearer.subscription.hears(kind) && queue.len() < QUEUED {
                queue.push(event.clone());
            }
            self.around.oracle.at_most("events of a listener", queue.len(), QUEUED);
            hearer.signal.raise();
        }
    }

    fn view<T>(&self, one: &Operation, look: impl FnOnce(&operation::Operation<'_>) -> T) -> T {
        let time = (self.now().0.as_secs(), Duration::ZERO.subsec_nanos());
        let (state, metadata) = (one.state.get(), Value::EMPTY);
        let (created, updated) = (time, time);
        look(&operation::Operation { id: &one.id, created, updated, state, metadata, error: "" })
    }

    fn show(&self, one: &Operation) -> Document {
        let flavour = self.around.flavour;
        Document::new(512, |json| self.view(one, |view| operation::write(json, flavour, view)))
    }

    /// Starts a command, which ends by itself.
    fn begin(self: &Rc<Self>) -> Reply {
        let (sim, flavour) = (self.sim().clone(), self.around.flavour);
        let mut id = String::new();
        let mut random = [0; 16];
        random[8..].copy_from_slice(&sim.number().to_be_bytes());
        operation::write_id(&mut id, flavour, (1, 0), random).expect("a text");
        let (state, changed) = (Cell::new(State::Running), Signal::default());
        let one = Rc::new(Operation { id, state, changed });
        self.operations.borrow_mut().push(one.clone());
        self.publish(OPERATION, self.show(&one).value());
        let path = format!("/1.0/operations/{}", one.id);
        let body = Document::new(512, |json| {
            self.view(&one, |view| operation::write_async(json, flavour, &path, view));
        });
        let agent = self.clone();
        self.spawn(async move {
            sleep(&sim, Zone::Guest, sim.dice.between(MILLI, 8 * SECOND)).await;
            one.state.set(State::Success);
            agent.publish(OPERATION, agent.show(&one).value());
            one.changed.raise();
            sleep(&sim, Zone::Guest, KEPT).await;
            agent.operations.borrow_mut().retain(|other| !Rc::ptr_eq(other, &one));
        });
        Reply { location: Some(path), ..Reply::json(202, body.line()) }
    }
}
