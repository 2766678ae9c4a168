//! The timers that are waited for. There is no system call for one: the earliest limits the next wait.

use std::cell::RefCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mote_core::time::Uptime;

/// All timers, the earliest first. Nearly all are made with one of few durations, so that a new one belongs near the
/// end.
struct Timers {
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

thread_local! {
    // Never dropped: what waits may be dropped after it at a thread's end.
    static TIMERS: ManuallyDrop<RefCell<Timers>> =
        const { ManuallyDrop::new(RefCell::new(Timers { all: Vec::new(), count: 0 })) };
}

/// Time until the earliest is due.
pub(super) fn next() -> Option<Duration> {
    TIMERS.with(|timers| timers.borrow().all.first().map(|timer| timer.when.0 - now()))
}

/// Wakes those that are due.
pub(super) fn expire() {
    TIMERS.with(|timers| {
        let all = &mut timers.borrow_mut().all;
        if all.is_empty() {
            return;
        }
        let now = now();
        let due = all.partition_point(|timer| timer.when.0 <= now);
        all.drain(..due).for_each(|timer| timer.waker.wake());
    });
}

/// Number of timers.
#[cfg(test)]
pub(super) fn waiting() -> usize {
    TIMERS.with(|timers| timers.borrow().all.len())
}

impl Timers {
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

/// As `runtime/clock` has it, which is built on this.
fn now() -> Uptime {
    Uptime(crate::sys::since_boot())
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
        TIMERS.with(|timers| {
            let mut timers = timers.borrow_mut();
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
        TIMERS.with(|timers| {
            let mut timers = timers.borrow_mut();
            if let Some(at) = timers.find((self.at, self.id)) {
                timers.all.remove(at);
            }
        });
    }
}
