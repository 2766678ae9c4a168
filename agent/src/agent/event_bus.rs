//! The event bus: one copy of each event, and a queue per listener, so that a slow listener never
//! delays the others. All queued events share a limit in bytes; listeners that block it are
//! dropped.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::event::{Audience, Subscription, one_line};
use mote_core::json::{Document, Value};
use mote_core::limits;
use mote_core::time::Timestamp;

use crate::runtime::{Permit, Semaphore, Signal, clock, log, within};

/// Maximum number of events queued for a listener. mote drops a listener that would exceed it.
const QUEUED: usize = 512;
/// How long a posted event waits for slow listeners before they are dropped. A listener reads
/// within a millisecond, but may be scheduled late; the host waits 3 s.
const LAG: Duration = Duration::from_secs(1);

pub(crate) struct Events {
    pub(crate) listeners: RefCell<Vec<Rc<Listener>>>,
    /// A permit for each free byte of [`limits::EVENTS`].
    room: Rc<Semaphore>,
    count: Cell<u64>,
}

/// An event in its wire format, shared by all its listeners.
pub(crate) struct Event {
    number: u64,
    /// The event's JSON with a newline.
    pub(crate) line: String,
    #[expect(dead_code, reason = "released once the last listener has sent the event")]
    share: Option<Permit>,
}

pub(crate) struct Listener {
    pub(crate) subscription: Subscription,
    /// The queued events, of which the first one is being sent.
    queue: RefCell<VecDeque<Rc<Event>>>,
    pub(crate) overrun: Cell<bool>,
    signal: Signal,
}

impl Events {
    pub(crate) fn new() -> Self {
        let room = Rc::new(Semaphore::new(limits::EVENTS));
        Self { listeners: RefCell::default(), room, count: Cell::new(0) }
    }

    /// Publishes an event of type `kind` when there is room; drops listeners that leave no room.
    pub(crate) async fn post(&self, kind: &str, metadata: Value<'_>) {
        if !self.is_heard(kind) {
            return;
        }
        let length = metadata.raw().len() + kind.len() + ENVELOPE;
        let share = loop {
            match within(LAG, self.room.clone().take_many(length)).await {
                None if self.drop_slowest() => {}
                share => break share,
            }
        };
        self.queue(kind, stamped(kind, metadata), share);
    }

    /// Publishes an event immediately.
    pub(crate) fn publish(&self, kind: &str, metadata: &dyn Fn() -> Document) {
        if !self.is_heard(kind) {
            return;
        }
        let event = stamped(kind, metadata().value());
        let mut share = self.room.try_take_many(event.bytes());
        // A dropped listener frees its events when its task runs next; until then this event
        // exceeds the limit.
        if share.is_none() && self.drop_slowest() {
            share = self.room.try_take_many(event.bytes());
        }
        self.queue(kind, event, share);
    }

    pub(crate) fn hosts(&self) -> usize {
        let all = self.listeners.borrow();
        all.iter().filter(|one| one.subscription.audience == Audience::Host).count()
    }

    pub(crate) fn is_heard(&self, kind: &str) -> bool {
        self.listeners.borrow().iter().any(|listener| listener.subscription.hears(kind))
    }

    fn queue(&self, kind: &str, event: Document, share: Option<Permit>) {
        let number = self.count.get();
        self.count.set(number + 1);
        let event = Rc::new(Event { number, line: one_line(event), share });
        for listener in self.listeners.borrow().iter() {
            if !listener.subscription.hears(kind) || listener.overrun.get() {
                continue;
            }
            let mut queue = listener.queue.borrow_mut();
            queue.push_back(event.clone());
            let is_full = queue.len() > QUEUED;
            drop(queue);
            if is_full {
                listener.give_up();
            }
            listener.signal.raise();
        }
    }

    /// Drops the listeners that have not read the oldest event; returns false if none are unread.
    fn drop_slowest(&self) -> bool {
        let listeners = self.listeners.borrow();
        let Some(oldest) = listeners.iter().filter_map(|listener| listener.oldest()).min() else {
            return false;
        };
        let slow = listeners.iter().filter(|listener| listener.oldest() == Some(oldest));
        slow.for_each(|listener| listener.give_up());
        true
    }
}

impl Listener {
    pub(crate) fn new(subscription: Subscription) -> Self {
        let (queue, overrun) = (RefCell::default(), Cell::default());
        Self { subscription, queue, overrun, signal: Signal::default() }
    }

    /// Returns the number of the next event to take.
    fn oldest(&self) -> Option<u64> {
        self.queue.borrow().front().map(|event| event.number)
    }

    fn give_up(&self) {
        log::warn(format_args!("dropped a slow event listener"));
        self.overrun.set(true);
        self.queue.take();
        self.signal.raise();
    }

    /// Waits for the next event, which stays in the queue until [`Listener::sent`].
    pub(crate) async fn next(&self) -> Rc<Event> {
        self.signal.until(|| self.queue.borrow().front().cloned()).await
    }

    pub(crate) fn sent(&self) {
        let mut queue = self.queue.borrow_mut();
        queue.pop_front();
        if queue.is_empty() {
            // Free the memory now, because the listener may be idle for long.
            *queue = VecDeque::new();
        }
    }

    /// Waits until the listener is dropped for being slow.
    pub(crate) async fn dropped(&self) {
        self.signal.until(|| self.overrun.get().then_some(())).await;
    }
}

/// Size of an event's envelope without its type, in bytes.
const ENVELOPE: usize = 96;

/// Creates an event with the current time instead of the host's, as the Go agents do (P§4.3).
fn stamped(kind: &str, metadata: Value<'_>) -> Document {
    let (seconds, nanoseconds) = clock::wall();
    Document::new(metadata.raw().len() + kind.len() + ENVELOPE, |json| {
        json.begin_object();
        json.pair("type", kind);
        json.key("timestamp");
        json.time(Timestamp(seconds, nanoseconds));
        json.key("metadata");
        json.value(metadata);
        json.end_object();
    })
}
