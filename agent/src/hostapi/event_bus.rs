//! Event queues, one per listener, so that a slow listener never delays the others.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use mote_core::hostapi::event::Subscription;
use mote_core::json::{Document, Value};
use mote_core::timestamp::Timestamp;

use crate::runtime::clock;
use crate::runtime::wake::Signal;

/// Most events queued for a listener (shared between queues, not copied). One more drops the listener.
const QUEUED: usize = 512;

/// The event bus: all listeners.
#[derive(Default)]
pub(crate) struct Events {
    pub(super) listeners: RefCell<Vec<Rc<Listener>>>,
}

/// One listener's queue.
pub(crate) struct Listener {
    pub(super) subscription: Subscription,
    pub(super) queue: RefCell<VecDeque<Rc<str>>>,
    pub(super) overrun: Cell<bool>,
    pub(super) signal: Signal,
}

impl Events {
    /// Queues the event for each listener that subscribes to type `kind`.
    pub(crate) fn publish(&self, kind: &str, event: &Document) {
        let event: Rc<str> = event.value().raw().into();
        for listener in self.listeners.borrow().iter() {
            if !listener.subscription.hears(kind) {
                continue;
            }
            let mut queue = listener.queue.borrow_mut();
            if queue.len() >= QUEUED {
                listener.overrun.set(true);
            } else {
                queue.push_back(event.clone());
            }
            listener.signal.raise();
        }
    }
}

impl Listener {
    /// Waits for the next event; `None` once the queue has overflowed.
    pub(super) async fn next(&self) -> Option<Rc<str>> {
        let next = || match self.overrun.get() {
            true => Some(None),
            false => self.queue.borrow_mut().pop_front().map(Some),
        };
        self.signal.until(next).await
    }
}

/// An event of type `kind`, stamped with the current time: the host's own timestamp is replaced, as the
/// real agents do (P§4.3).
pub(crate) fn stamped(kind: &str, metadata: Value<'_>) -> Document {
    let (seconds, nanoseconds) = clock::wall();
    Document::new(metadata.raw().len() + 96, |json| {
        json.begin_object();
        json.pair("type", kind);
        json.key("timestamp");
        json.time(Timestamp(seconds, nanoseconds));
        json.key("metadata");
        json.value(metadata);
        json.end_object();
    })
}
