//! Wake-ups between tasks of one thread. They carry no data: a task rechecks its condition.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The [`Signal::seen`] of a signal that was never raised.
pub(crate) const NEVER: u64 = 0;

/// Announces changes of a condition.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: Cell<u64>,
    waiting: RefCell<Waiting>,
}

#[derive(Debug, Default)]
pub(crate) struct Waiting(Vec<Waker>);

impl Waiting {
    /// Adds a waker, unless the same task has one.
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|other| other.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Signal {
    /// Wakes all tasks that wait now.
    pub(crate) fn raise(&self) {
        self.raised.set(self.raised.get().wrapping_add(1));
        self.waiting.take().wake();
    }

    /// Raises the signal when the returned value is dropped.
    pub(crate) fn raised_on_drop(&self) -> impl Drop {
        struct Raise<'s>(&'s Signal);
        impl Drop for Raise<'_> {
            fn drop(&mut self) {
                self.0.raise();
            }
        }
        Raise(self)
    }

    /// Returns the count to pass to [`Signal::after`]. Read it before you check the condition, so
    /// that no change is missed.
    pub(crate) fn seen(&self) -> u64 {
        self.raised.get()
    }

    /// Calls `look` immediately and after each signal until it returns something. Cancel-safe.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let seen = self.seen();
            if let Some(found) = look() {
                return found;
            }
            self.after(seen).await;
        }
    }

    /// Waits for a signal later than `seen`. Cancel-safe.
    pub(crate) async fn after(&self, seen: u64) {
        let mut entry = Entry { signal: self, seen, waker: None };
        poll_fn(|context| {
            if self.raised.get() != seen {
                return Poll::Ready(());
            }
            entry.renew(context.waker());
            Poll::Pending
        })
        .await;
    }
}

/// One wait in a signal's list. Dropping it removes the waker, which would keep the task's memory.
struct Entry<'s> {
    signal: &'s Signal,
    seen: u64,
    waker: Option<Waker>,
}

impl Entry<'_> {
    fn renew(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.remove();
            self.signal.waiting.borrow_mut().0.push(waker.clone());
            self.waker = Some(waker.clone());
        }
    }

    /// Removes the waker. Two waits of one task have separate entries.
    fn remove(&mut self) {
        let Some(waker) = self.waker.take() else { return };
        // A raised signal has emptied the list: an equal waker in it now belongs to another entry.
        if self.signal.raised.get() == self.seen {
            let waiting = &mut self.signal.waiting.borrow_mut().0;
            if let Some(at) = waiting.iter().position(|other| other.will_wake(&waker)) {
                waiting.remove(at);
            }
            if waiting.is_empty() {
                *waiting = Vec::new();
            }
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use smol::LocalExecutor;
    use smol::future::{yield_now, zip};

    use super::*;
    use crate::runtime::{block_on, within};

    #[test]
    fn a_cancelled_wait_leaves_no_waker() {
        let signal = Signal::default();
        block_on(&LocalExecutor::new(), async {
            let soon = std::time::Duration::from_millis(1);
            for _ in 0..3 {
                let both = zip(signal.after(signal.seen()), signal.after(signal.seen()));
                assert!(within(soon, both).await.is_none());
                assert_eq!(signal.waiting.borrow().0.len(), 0);
            }
        });
    }

    #[test]
    fn a_cancelled_wait_keeps_other_waits_of_its_task() {
        let (signal, executor) = (Rc::new(Signal::default()), LocalExecutor::new());
        let raising = signal.clone();
        executor
            .spawn(async move {
                for _ in 0..10 {
                    yield_now().await;
                }
                raising.raise();
            })
            .detach();
        let found = Cell::new(false);
        block_on(&executor, async {
            let leaves = async {
                // This wait registers, and is dropped while the other one waits.
                let wait = signal.after(signal.seen());
                smol::future::or(wait, async { yield_now().await }).await;
            };
            let stays = async {
                signal.after(signal.seen()).await;
                found.set(true);
            };
            zip(leaves, stays).await;
        });
        assert!(found.get());
        assert_eq!(signal.waiting.borrow().0.len(), 0);
    }
}
