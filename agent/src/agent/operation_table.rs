//! The table of operations (P§4.2). The core's `operation` writes their JSON.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::hostapi::event::OPERATION;
use mote_core::hostapi::operation::{self, State};
use mote_core::json::{Document, Writer};
use mote_core::leave::Load;
use mote_core::limits;

use crate::agent::{Events, Sockets, error};
use crate::net::serve::{Answer, Reply};
use crate::runtime::{NEVER, Permit, Semaphore, Signal, clock};

/// How long an operation can be queried after its end (P§4.2).
pub(crate) const OPERATION_KEPT: Duration = Duration::from_secs(5);
/// Maximum number of operations, including ended ones; beyond it: 503.
const MAX_OPERATIONS: usize = 4096;

/// Maximum size of an operation's JSON without its metadata and error, in bytes.
const FIELDS: usize = 1024;

pub(crate) struct Operation {
    id: String,
    created: (u64, u32),
    updated: Cell<(u64, u32)>,
    pub(crate) state: Cell<State>,
    metadata: RefCell<Document>,
    /// Permits for the first metadata.
    share: Cell<Option<Permit>>,
    pub(crate) error: RefCell<String>,
    changed: Signal,
    /// Whether a host has fetched the result, or has heard of it as an event.
    pub(crate) is_fetched: Cell<bool>,
    pub(crate) sockets: Sockets,
}

pub(crate) struct Operations {
    flavour: Flavour,
    events: Rc<Events>,
    pub(crate) all: RefCell<Vec<Rc<Operation>>>,
    /// A permit for each free byte of [`limits::HOST_MEMORY`].
    pub(crate) memory: Rc<Semaphore>,
    end: Signal,
}

impl Operations {
    /// Returns an empty table. Publishes changes of operations to `events`.
    pub(crate) fn new(flavour: Flavour, events: Rc<Events>) -> Self {
        let memory = Rc::new(Semaphore::new(limits::HOST_MEMORY));
        Self { flavour, events, all: RefCell::default(), memory, end: Signal::default() }
    }

    /// Ends all operations, because the agent ends. For the host, commands end as if their terminal
    /// had closed (P§4.1).
    pub(crate) fn hang_up(&self) {
        self.end.raise();
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        self.end.seen() != NEVER
    }

    pub(crate) async fn hung_up(&self) {
        self.end.after(0).await;
    }

    /// Returns the operation with this ID. Compares IDs from the end, because thousands may share
    /// their start, the time.
    pub(crate) fn find(&self, id: &str) -> Option<Rc<Operation>> {
        let is = |one: &&Rc<Operation>| one.id.bytes().rev().eq(id.bytes().rev());
        self.all.borrow().iter().find(is).cloned()
    }

    /// Adds a running operation and publishes it.
    /// Errors: the 503 answer, if there are too many operations or too much metadata.
    pub(crate) fn begin(
        &self,
        metadata: Document,
        sockets: Sockets,
    ) -> Result<Rc<Operation>, Answer> {
        let share = self.memory.try_take_many(metadata.bytes());
        if share.is_none() || self.all.borrow().len() >= MAX_OPERATIONS {
            return Err(error(503, "Too many operations"));
        }
        let now = clock::wall();
        let mut random = [0; 16];
        crate::runtime::random::fill_random(&mut random);
        let mut id = String::with_capacity(36);
        let _infallible = operation::write_id(&mut id, self.flavour, now, random);
        let operation = Rc::new(Operation {
            id,
            created: now,
            updated: Cell::new(now),
            state: Cell::new(State::Running),
            metadata: RefCell::new(metadata),
            share: Cell::new(share),
            error: RefCell::default(),
            changed: Signal::default(),
            is_fetched: Cell::new(false),
            sockets,
        });
        self.all.borrow_mut().push(operation.clone());
        self.publish(&operation);
        Ok(operation)
    }

    fn publish(&self, operation: &Operation) {
        self.events.publish(OPERATION, &|| operation.document(self.flavour));
    }

    /// Changes the operation's state and publishes it.
    pub(crate) fn change(&self, operation: &Operation, state: State) {
        operation.state.set(state);
        operation.updated.set(clock::wall());
        self.publish(operation);
        operation.changed.raise();
    }

    /// Ends an operation with its final metadata, if any, and the error text, if it failed.
    /// Publishes the metadata first, then the end, like the Go agents (P§4.1).
    pub(crate) fn end(
        &self,
        operation: &Operation,
        metadata: Option<Document>,
        failure: Option<String>,
    ) {
        if let Some(metadata) = metadata {
            *operation.metadata.borrow_mut() = metadata;
            operation.share.take();
            self.change(operation, operation.state.get());
        }
        operation.is_fetched.set(self.events.is_heard(OPERATION));
        let state = if failure.is_some() { State::Failure } else { State::Success };
        *operation.error.borrow_mut() = failure.unwrap_or_default();
        self.change(operation, state);
    }

    /// Whether commands run, or have ended and the host may not know their result.
    pub(crate) fn load(&self) -> Load {
        let all = self.all.borrow();
        if all.iter().any(|one| !one.state.get().is_final()) {
            Load::Busy
        } else if all.iter().any(|one| !one.is_fetched.get()) {
            Load::Results
        } else {
            Load::Idle
        }
    }

    pub(crate) fn forget(&self, operation: &Rc<Operation>) {
        let mut all = self.all.borrow_mut();
        all.retain(|other| !Rc::ptr_eq(other, operation));
        if all.is_empty() {
            *all = Vec::new();
        }
    }
}

impl Operation {
    fn view<T>(&self, look: impl FnOnce(&operation::Operation<'_>) -> T) -> T {
        look(&operation::Operation {
            id: &self.id,
            created: self.created,
            updated: self.updated.get(),
            state: self.state.get(),
            metadata: self.metadata.borrow().value(),
            error: &self.error.borrow(),
        })
    }

    pub(crate) fn write(&self, json: &mut Writer<'_>, flavour: Flavour) {
        self.view(|view| operation::write(json, flavour, view));
    }

    pub(crate) fn document(&self, flavour: Flavour) -> Document {
        Document::new(self.shown(), |json| self.write(json, flavour))
    }

    /// Returns an upper bound for the length of the operation's JSON, in bytes.
    pub(crate) fn shown(&self) -> usize {
        self.metadata.borrow().bytes() + 6 * self.error.borrow().len() + FIELDS
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn path(&self) -> String {
        format!("/1.0/operations/{}", self.id)
    }

    /// Returns the 202 answer to the request that created the operation.
    pub(crate) fn begun(&self, flavour: Flavour) -> Answer {
        let path = self.path();
        let body = Document::new(self.shown(), |json| {
            self.view(|view| operation::write_async(json, flavour, &path, view));
        });
        let mut reply = Reply::json(202, body.line());
        reply.header = Some(("Location", path));
        Answer::Reply(reply)
    }

    /// Returns whether the operation has not ended and is not being cancelled.
    pub(crate) fn is_running(&self) -> bool {
        self.state.get() == State::Running
    }

    pub(crate) async fn ended(&self) {
        self.changed.until(|| self.state.get().is_final().then_some(())).await;
    }
}
