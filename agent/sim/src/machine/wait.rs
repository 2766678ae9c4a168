//! Waits for a time, the first of two futures, or a change.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};

use super::executor::{Micros, Sim};
use super::tasks::Zone;
/// Returns the output of the first future to complete; drops the other.
pub(crate) use smol::future::or as either;

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

pub(crate) async fn until(sim: &Sim, zone: Zone, when: Micros) {
    let mut is_set = false;
    poll_fn(|context| {
        if sim.now(zone) >= when {
            return Poll::Ready(());
        }
        if !is_set {
            is_set = true;
            sim.wake_at(zone, when, context.waker());
        }
        Poll::Pending
    })
    .await;
}

/// Waits for `length` by the zone's clock.
pub(crate) async fn sleep(sim: &Sim, zone: Zone, length: Micros) {
    until(sim, zone, sim.now(zone).saturating_add(length)).await;
}

/// Returns the output, or `None` if it takes longer than `length`.
pub(crate) async fn within<T>(
    sim: &Sim,
    zone: Zone,
    length: Micros,
    work: impl Future<Output = T>,
) -> Option<T> {
    let late = async {
        sleep(sim, zone, length).await;
        None
    };
    either(async { Some(work.await) }, late).await
}
