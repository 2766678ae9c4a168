//! How many threads may serve at once. Beyond that a connection is closed unserved: a guest in a loop
//! must not take the daemon down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Places for threads.
#[derive(Debug)]
pub(crate) struct Slots(AtomicUsize);

/// A taken place, free again when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Slots>);

impl Slots {
    /// So many.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(count)))
    }

    /// One, if one is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Slot> {
        let less = |free: usize| free.checked_sub(1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).ok()?;
        Some(Slot(self.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_its_holder_ends() {
        let slots = Slots::new(1);
        let first = slots.take().unwrap();
        assert!(slots.take().is_none());
        drop(first);
        assert!(slots.take().is_some());
    }
}
