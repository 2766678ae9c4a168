//! The timers that are waited for. There is no system call for one: the earliest limits the next wait.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mote_core::time::Uptime;

use super::REACTOR;
use crate::runtime::clock::now;

/// All timers, the earliest first. Nearly all are made with one of few durations, so that a new one belongs near the
/// end.
pub(super) struct Timers {
    all: Vec<Due>,
    /// Number of timers there have been.
    count: u64,
}

/// A timer that somebody waits for.
struct Due {
    when: When,
    waker: Waker,
}

/// Its time, and what tells it apart from others of the same time.
type When = (Uptime, u64);

impl Timers {
    pub(super) const fn new() -> Self {
        Self { all: Vec::new(), count: 0 }
    }

    /// Time until the earliest is due.
    pub(super) fn next(&self) -> Option<Duration> {
        self.all.first().map(|timer| timer.when.0 - now())
    }

    /// Wakes those that are due.
    pub(super) fn expire(&mut self) {
        if self.all.is_empty() {
            return;
        }
        let now = now();
        let due = self.all.partition_point(|timer| timer.when.0 <= now);
        self.all.drain(..due).for_each(|timer| timer.waker.wake());
    }

    /// Number of timers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    fn add(&mut self, at: Uptime, waker: Waker) -> u64 {
        self.count += 1;
        let when = (at, self.count);
        let place = self.all.partition_point(|timer| timer.when < when);
        self.all.insert(place, Due { when, waker });
        self.count
    }

    fn find(&self, when: When) -> Option<usize> {
        self.all.binary_search_by_key(&when, |timer| timer.when).ok()
    }
}

/// Waits for a time.
#[derive(Debug)]
pub(crate) struct Timer {
    at: Uptime,
    /// 0 as long as it is in no list.
    id: u64,
}

impl Timer {
    /// A timer that is ready at that time.
    pub(crate) fn at(at: Uptime) -> Self {
        Self { at, id: 0 }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        REACTOR.with(|reactor| {
            let mut timers = reactor.timers.borrow_mut();
            if self.id == 0 {
                self.id = timers.add(self.at, context.waker().clone());
                return Poll::Pending;
            }
            // One that was due is not in the list any more.
            let Some(timer) = timers.find((self.at, self.id)).and_then(|at| timers.all.get_mut(at))
            else {
                return Poll::Ready(());
            };
            timer.waker.clone_from(context.waker());
            Poll::Pending
        })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        REACTOR.with(|reactor| {
            let mut timers = reactor.timers.borrow_mut();
            if let Some(at) = timers.find((self.at, self.id)) {
                timers.all.remove(at);
            }
        });
    }
}
