//! Operations: what the host started and asks after (P§4.2). Each is kept for a while after its end,
//! because the host looks then. The JSON is the core's (`operation.rs`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mote_agent::flavour::Flavour;
use mote_agent::http::head::Request;
use mote_agent::http::target::query;
use mote_agent::operation::{self, FAILED, State};

use crate::agent::Agent;
use crate::clock::{self, sleep, within};
use crate::events::stamped;
use crate::exchange::{Answer, Reply};
use crate::exec::Sockets;
use crate::host::{error, sync};
use crate::signal::Signal;

/// How long an operation can be asked for after its end (P§4.2).
const KEPT: Duration = Duration::from_secs(5);
/// Operations at once, ended ones included. Over it: 503.
const MOST: usize = 4096;

/// All operations.
#[derive(Default)]
pub(crate) struct Operations(RefCell<Vec<Rc<Operation>>>);

/// One of them.
pub(crate) struct Operation {
    id: String,
    created: (u64, u32),
    updated: Cell<(u64, u32)>,
    state: Cell<State>,
    metadata: RefCell<String>,
    error: RefCell<String>,
    changed: Signal,
    /// The way to its process.
    pub(crate) sockets: Sockets,
}

impl Operations {
    /// The operation of this id. Compared from the end: those of about the same time begin alike, and there
    /// may be thousands.
    pub(crate) fn find(&self, id: &str) -> Option<Rc<Operation>> {
        let is = |one: &&Rc<Operation>| one.id.bytes().rev().eq(id.bytes().rev());
        self.0.borrow().iter().find(is).cloned()
    }

    /// Adds one that runs from now on, and tells the listeners.
    ///
    /// # Errors
    /// The answer, if there are too many.
    pub(crate) fn begin(
        &self,
        agent: &Agent,
        metadata: String,
        sockets: Sockets,
    ) -> Result<Rc<Operation>, Answer> {
        if self.0.borrow().len() >= MOST {
            return Err(error(503, "Too many operations"));
        }
        let now = clock::wall();
        let mut random = [0; 16];
        crate::exec::fill_random(&mut random);
        let mut id = String::with_capacity(36);
        let _infallible = operation::write_id(&mut id, agent.flavour, now, random);
        let operation = Rc::new(Operation {
            id,
            created: now,
            updated: Cell::new(now),
            state: Cell::new(State::Running),
            metadata: RefCell::new(metadata),
            error: RefCell::default(),
            changed: Signal::default(),
            sockets,
        });
        self.0.borrow_mut().push(operation.clone());
        operation.tell(agent);
        Ok(operation)
    }
}

impl Operation {
    fn view<T>(&self, look: impl FnOnce(&operation::Operation<'_>) -> T) -> T {
        look(&operation::Operation {
            id: &self.id,
            created: self.created,
            updated: self.updated.get(),
            state: self.state.get(),
            metadata: &self.metadata.borrow(),
            error: &self.error.borrow(),
        })
    }

    fn json(&self, flavour: Flavour) -> String {
        let mut out = String::with_capacity(1024);
        let _infallible = self.view(|view| operation::write(&mut out, flavour, view));
        out
    }

    /// The answer that began it: 202.
    pub(crate) fn begun(&self, flavour: Flavour) -> Answer {
        let mut body = String::with_capacity(1024);
        let _infallible = self.view(|view| operation::write_async(&mut body, flavour, view));
        let mut reply = Reply::json(202, body);
        reply.location = Some(format!("/1.0/operations/{}", self.id));
        Answer::Reply(reply)
    }

    fn tell(&self, agent: &Agent) {
        agent.events.publish("operation", &stamped("operation", &self.json(agent.flavour)));
    }

    fn change(&self, agent: &Agent, state: State) {
        self.state.set(state);
        self.updated.set(clock::wall());
        self.tell(agent);
        self.changed.raise();
    }

    /// Ends it: with what came out of it, or with why nothing did. The host hears of the metadata
    /// first, then of the end, as from the originals (P§4.1).
    pub(crate) fn end(
        self: Rc<Self>,
        agent: &Rc<Agent>,
        metadata: Option<String>,
        failure: Option<String>,
    ) {
        if let Some(metadata) = metadata {
            *self.metadata.borrow_mut() = metadata;
            self.change(agent, self.state.get());
        }
        let state = if failure.is_some() { State::Failure } else { State::Success };
        *self.error.borrow_mut() = failure.unwrap_or_default();
        self.change(agent, state);
        let task = agent.clone();
        agent.spawn(async move {
            sleep(KEPT).await;
            task.operations.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self));
        });
    }

    async fn ended(&self) {
        self.changed.until(|| self.state.get().is_final().then_some(())).await;
    }
}

/// `GET /1.0/operations[?recursion=1]`: by state, as paths or whole.
pub(crate) fn list(agent: &Agent, request: &Request<'_>) -> Answer {
    let whole = query(request.query, "recursion").is_some_and(|depth| depth != "0");
    let mut out = String::from("{");
    for (state, key) in [
        (State::Running, "running"),
        (State::Cancelling, "cancelling"),
        (State::Success, "success"),
        (State::Failure, "failure"),
    ] {
        let all = agent.operations.0.borrow();
        for (index, one) in all.iter().filter(|one| one.state.get() == state).enumerate() {
            if index > 0 {
                out.push(',');
            } else {
                out.push_str(if out.len() > 1 { "],\"" } else { "\"" });
                out.push_str(key);
                out.push_str("\":[");
            }
            if whole {
                out.push_str(&one.json(agent.flavour));
            } else {
                out.push_str("\"/1.0/operations/");
                out.push_str(&one.id);
                out.push('"');
            }
        }
    }
    out.push_str(if out.len() > 1 { "]}" } else { "}" });
    sync(&out)
}

/// What there is to say of an id that nobody has.
fn unknown(agent: &Agent, status: u16, id: &str) -> Answer {
    match agent.flavour {
        Flavour::Incus => error(status, &format!("Operation '{id}' doesn't exist")),
        Flavour::Lxd | Flavour::LxdOld => {
            error(status, &format!("Operation \"{id}\" does not exist"))
        }
    }
}

/// `GET /1.0/operations/{id}`.
pub(crate) fn show(agent: &Agent, id: &str) -> Answer {
    match agent.operations.find(id) {
        Some(operation) => sync(&operation.json(agent.flavour)),
        None => unknown(agent, 500, id),
    }
}

/// `GET /1.0/operations/{id}/wait[?timeout=SECONDS]`.
pub(crate) async fn wait(agent: &Agent, id: &str, request: &Request<'_>) -> Answer {
    let Some(operation) = agent.operations.find(id) else { return unknown(agent, 404, id) };
    let timeout = match query(request.query, "timeout").map(str::parse::<i64>) {
        None | Some(Ok(..0)) => None,
        Some(Ok(seconds)) => Some(Duration::from_secs(seconds.unsigned_abs())),
        Some(Err(_)) => return error(400, "Invalid timeout value"),
    };
    let ended = match timeout {
        None => {
            operation.ended().await;
            true
        }
        Some(timeout) => within(timeout, operation.ended()).await.is_some(),
    };
    match (ended, operation.state.get()) {
        (false, _) => error(500, "context deadline exceeded"),
        (true, State::Failure) => error(FAILED, &operation.error.borrow()),
        (true, _) => sync(&operation.json(agent.flavour)),
    }
}

/// `DELETE /1.0/operations/{id}`: what runs here cannot be cancelled, only waited for (P§4.2).
pub(crate) async fn cancel(agent: &Agent, id: &str) -> Answer {
    let Some(operation) = agent.operations.find(id) else { return unknown(agent, 500, id) };
    if agent.flavour != Flavour::Lxd {
        return error(400, "This operation can't be cancelled");
    }
    if operation.state.get() != State::Running {
        return error(400, "Only running operations can be cancelled");
    }
    operation.change(agent, State::Cancelling);
    operation.ended().await;
    sync("{}")
}
