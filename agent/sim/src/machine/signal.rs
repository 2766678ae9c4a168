//! Announces changes.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    pub(crate) fn raise(&self) {
        self.raised.set(self.raised.get() + 1);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Returns the count to pass to [`Signal::after`].
    pub(crate) fn seen(&self) -> u64 {
        self.raised.get()
    }

    pub(crate) async fn after(&self, seen: u64) {
        poll_fn(|context| {
            if self.raised.get() != seen {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|other| other.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
