//! A wake-up between tasks of the one thread: no locks, no counts, only "look again".

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Something to look at again. Every waiter that began before [`Signal::raise`] is woken by it.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: Cell<u64>,
    waiting: RefCell<Waiting>,
}

/// Who is to look again, each once.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Vec<Waker>);

impl Waiting {
    /// One more who waits.
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|other| other.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Wakes all.
    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Signal {
    /// Wakes all who wait.
    pub(crate) fn raise(&self) {
        self.raised.set(self.raised.get().wrapping_add(1));
        self.waiting.take().wake();
    }

    /// What to give to [`Signal::after`], taken before looking at what the signal is about.
    pub(crate) fn seen(&self) -> u64 {
        self.raised.get()
    }

    /// Looks, and looks again each time it is raised, until there is something. Loses nothing when
    /// dropped.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let seen = self.seen();
            if let Some(found) = look() {
                return found;
            }
            self.after(seen).await;
        }
    }

    /// Waits until it is raised after `seen` was taken. Loses nothing when dropped.
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
