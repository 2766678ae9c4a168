//! The pending timers. A timer needs no system call: the earliest one limits the next wait.

use std::cell::RefCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// All timers, the earliest first. Most are created with one of a few durations, so a new one
/// belongs near the end.
struct Timers {
    all: Vec<Due>,
    /// Number of timers ever added.
    count: u64,
}

/// A timer that a task waits for.
struct Due {
    when: When,
    waker: Waker,
}

/// The time of a timer, and a number that is unique among all timers.
type When = (Duration, u64);

thread_local! {
    // Never dropped, because at a thread's end a `Timer` may be dropped after it.
    static TIMERS: ManuallyDrop<RefCell<Timers>> =
        const { ManuallyDrop::new(RefCell::new(Timers { all: Vec::new(), count: 0 })) };
}

/// Returns the time until the earliest timer is due.
pub(super) fn next(now: impl Fn() -> Duration) -> Option<Duration> {
    TIMERS
        .with(|timers| timers.borrow().all.first().map(|timer| timer.when.0.saturating_sub(now())))
}

/// Wakes the tasks whose timers are due.
pub(super) fn expire(now: impl Fn() -> Duration) {
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

#[cfg(test)]
pub(super) fn waiting() -> usize {
    TIMERS.with(|timers| timers.borrow().all.len())
}

impl Timers {
    fn add(&mut self, at: Duration, waker: Waker) -> u64 {
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

/// A future that is ready at a given time.
#[derive(Debug)]
pub struct Timer {
    at: Duration,
    /// 0 until the timer is in the list.
    id: u64,
}

impl Timer {
    /// Creates a timer that is ready when the clock of [`block_on`](crate::block_on) shows `at`.
    #[must_use]
    pub fn at(at: Duration) -> Self {
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
            // A timer that was due has been removed from the list.
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
