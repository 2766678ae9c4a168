//! Runs all tasks on one thread.

#[cfg(feature = "async-io")]
use std::{future::poll_fn, pin::pin};

use std::time::Duration;

use mote_core::time::Uptime;
use smol::LocalExecutor;
pub(crate) use smol::Task;

use crate::runtime::{now, reactor};
use crate::sys::heap;

pub(crate) type Executor = LocalExecutor<'static>;

/// Number of task runs before the reactor polls the kernel, if tasks are always ready.
#[cfg(not(feature = "async-io"))]
const TASKS: usize = 64;
/// Minimum time for which freed blocks are kept. A shorter wait than the kernel's own timers is
/// expensive: reprogramming the clock device takes 0.2 ms under emulation.
const SPARES_TTL: Duration = Duration::from_millis(900);

/// Runs a future and an executor's tasks until the future is ready. The executor's own `run`
/// supports several threads and allocates a queue of 8 KiB for each.
#[cfg(not(feature = "async-io"))]
pub(crate) fn block_on<T>(executor: &LocalExecutor<'_>, future: impl Future<Output = T>) -> T {
    let mut spares = Spares::default();
    reactor::block_on(
        future,
        || now().0,
        || {
            let is_busy = (0..TASKS).all(|_| executor.try_tick());
            if is_busy { Some(Duration::ZERO) } else { spares.before_wait() }
        },
    )
}

/// Runs a future and an executor's tasks until the future is ready. Releases spare blocks at the
/// next wake-up after [`SPARES_TTL`].
#[cfg(feature = "async-io")]
pub(crate) fn block_on<T>(executor: &LocalExecutor<'_>, future: impl Future<Output = T>) -> T {
    let (mut run, mut spares) = (pin!(executor.run(future)), Spares::default());
    reactor::block_on(poll_fn(|context| {
        let polled = run.as_mut().poll(context);
        spares.before_wait();
        polled
    }))
}

/// When to release the blocks that the allocator keeps for reuse.
#[derive(Default)]
struct Spares {
    /// When to release the blocks.
    release: Uptime,
    /// When the last wait began.
    waited: Uptime,
}

impl Spares {
    /// Releases the blocks if it is time. Returns an upper bound for the next wait if any are kept.
    fn before_wait(&mut self) -> Option<Duration> {
        let now = now();
        // After a long wait and one action, another long wait is likely.
        let was_asleep = now - self.waited >= SPARES_TTL;
        self.waited = now;
        if now < self.release && !was_asleep {
            // The time until `release` could be too short a wait.
            return Some(SPARES_TTL);
        }
        heap::rest();
        self.release = now + SPARES_TTL;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    use crate::runtime::until;

    #[test]
    fn timers_fire_in_order_and_not_before_their_time() {
        // One task per timer and a common start: several timers may be due at once, and futures
        // within one task are polled in a fixed order.
        let executor = LocalExecutor::new();
        let fired = Rc::new(RefCell::new(Vec::new()));
        let start = now();
        let tasks = [30, 10, 20, 0].map(|millis| {
            let fired = fired.clone();
            executor.spawn(async move {
                let at = start + Duration::from_millis(millis);
                until(Some(at)).await;
                assert!(now() >= at, "{millis}");
                fired.borrow_mut().push(millis);
            })
        });
        block_on(&executor, async {
            for task in tasks {
                task.await;
            }
        });
        assert_eq!(*fired.borrow(), [0, 10, 20, 30]);
    }
}
