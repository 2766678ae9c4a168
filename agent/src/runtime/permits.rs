//! A semaphore for one thread.

use std::cell::Cell;
use std::rc::Rc;

use crate::runtime::Signal;

/// A number of permits, for example one per served peer or per held byte.
pub(crate) struct Semaphore {
    free: Cell<usize>,
    freed: Signal,
}

/// One permit or several; returned to the semaphore when dropped.
pub(crate) struct Permit(Rc<Semaphore>, usize);

impl Semaphore {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Cell::new(count), freed: Signal::default() }
    }

    pub(crate) async fn take(self: Rc<Self>) -> Permit {
        self.take_many(1).await
    }

    /// Waits until `count` permits are free at once. Smaller requests may overtake it.
    pub(crate) async fn take_many(self: Rc<Self>, count: usize) -> Permit {
        self.freed.until(|| self.try_take_many(count)).await
    }

    pub(crate) fn free(&self) -> usize {
        self.free.get()
    }

    pub(crate) fn try_take(self: &Rc<Self>) -> Option<Permit> {
        self.try_take_many(1)
    }

    pub(crate) fn try_take_many(self: &Rc<Self>, count: usize) -> Option<Permit> {
        self.free.set(self.free.get().checked_sub(count)?);
        Some(Permit(self.clone(), count))
    }
}

impl Permit {
    /// Releases all except `count`.
    pub(crate) fn shrink(&mut self, count: usize) {
        let rest = self.1.saturating_sub(count);
        self.1 -= rest;
        drop(Permit(self.0.clone(), rest));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + self.1);
        self.0.freed.raise();
    }
}
