//! A semaphore for one thread.

use std::cell::Cell;
use std::rc::Rc;

use crate::runtime::Signal;

/// A number of permits, for example one per served peer or per reserved byte.
pub(crate) struct Semaphore {
    free: Cell<usize>,
    /// Raised when permits are returned, and when the last one is taken.
    changed: Signal,
}

/// One permit or several; returned to the semaphore when dropped.
pub(crate) struct Permit(Rc<Semaphore>, usize);

impl Semaphore {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Cell::new(count), changed: Signal::default() }
    }

    pub(crate) async fn take(self: Rc<Self>) -> Permit {
        self.take_many(1).await
    }

    /// Waits until `count` permits are free at once. Smaller requests may overtake it.
    pub(crate) async fn take_many(self: Rc<Self>, count: usize) -> Permit {
        self.changed.until(|| self.try_take_many(count)).await
    }

    pub(crate) fn free(&self) -> usize {
        self.free.get()
    }

    pub(crate) fn try_take(self: &Rc<Self>) -> Option<Permit> {
        self.try_take_many(1)
    }

    pub(crate) fn try_take_many(self: &Rc<Self>, count: usize) -> Option<Permit> {
        self.free.set(self.free.get().checked_sub(count)?);
        if self.free.get() == 0 {
            self.changed.raise();
        }
        Some(Permit(self.clone(), count))
    }
}

impl Permit {
    /// Waits until all permits are taken, so that this one may be needed.
    pub(crate) async fn needed(&self) {
        self.0.changed.until(|| (self.0.free.get() == 0).then_some(())).await;
    }

    pub(crate) fn shrink(&mut self, count: usize) {
        let rest = self.1.saturating_sub(count);
        self.1 -= rest;
        drop(Permit(self.0.clone(), rest));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + self.1);
        self.0.changed.raise();
    }
}
