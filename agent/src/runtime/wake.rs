//! Wake-ups between tasks of one thread. A signal carries no data: a woken task checks its condition again.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Announces changes of a condition. [`Signal::raise`] wakes every task that waits at that time.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    /// Number of calls of [`Signal::raise`].
    raised: Cell<u64>,
    waiting: RefCell<Waiting>,
}

/// The wakers of the tasks that wait, each once.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Vec<Waker>);

impl Waiting {
    /// Adds a waker, unless one of its task is there.
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|other| other.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Wakes all tasks.
    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Signal {
    /// Wakes all tasks that wait.
    pub(crate) fn raise(&self) {
        self.raised.set(self.raised.get().wrapping_add(1));
        self.waiting.take().wake();
    }

    /// The count to pass to [`Signal::after`]. To be taken before the condition is checked, so that no change
    /// is missed.
    pub(crate) fn seen(&self) -> u64 {
        self.raised.get()
    }

    /// Calls `look` at once and after each signal until it returns something. Dropping the future loses
    /// nothing.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let seen = self.seen();
            if let Some(found) = look() {
                return found;
            }
            self.after(seen).await;
        }
    }

    /// Waits for a signal later than `seen`. Dropping the future loses nothing.
    pub(crate) async fn after(&self, seen: u64) {
        poll_fn(|context| {
            if self.raised.get() != seen {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().add(context.waker());
            Poll::Pending
        })
        .await;
    }
}
