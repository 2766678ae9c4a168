//! The loop of the one thread, on which all tasks run.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use smol::LocalExecutor;
pub(crate) use smol::Task;

use crate::runtime::reactor;

/// Runs the agent's tasks.
pub(crate) type Executor = LocalExecutor<'static>;

/// Most runs of tasks between two looks at the kernel, if there always is a task that is ready.
const TASKS: usize = 64;

/// Whether the future of [`block_on`] was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a future and an executor's tasks until the future is ready.
///
/// The executor's own `run` supports several threads and takes a queue of 8 KiB for each.
pub(crate) fn block_on<T>(executor: &LocalExecutor<'_>, future: impl Future<Output = T>) -> T {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if woken.0.swap(false, Ordering::Relaxed)
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return output;
        }
        let is_busy = (0..TASKS).all(|_| executor.try_tick());
        reactor::turn(is_busy || woken.0.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::task::Poll;
    use std::time::Duration;

    use crate::runtime::reactor::Async;

    use super::*;
    use smol::future::yield_now;

    use crate::runtime::clock::{now, sleep, until, within};

    #[test]
    fn timers_fire_in_order_and_not_before_their_time() {
        // One task for each timer and a common start: on a busy machine several may be due at once, and the
        // futures within one task are polled in a fixed order.
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
        let executor = LocalExecutor::new();
        block_on(&executor, async {
            assert!(within(Duration::from_millis(1), until(None)).await.is_none());
            assert!(within(Duration::from_secs(60), yield_now()).await.is_some());
        });
    }

    #[test]
    fn tasks_run_beside_the_future_and_each_other_and_wake_it() {
        let executor = LocalExecutor::new();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let count = Rc::new(Cell::new(0));
        let busy = executor.spawn(async {
            // Always ready; the others must run all the same.
            loop {
                yield_now().await;
            }
        });
        for millis in 0..3 {
            let count = count.clone();
            let task = async move {
                sleep(Duration::from_millis(millis)).await;
                count.set(count.get() + 1);
            };
            executor.spawn(task).detach();
        }
        let answer = executor.spawn(async move {
            let ours = Async::new(ours).unwrap();
            let mut piece = [0; 64];
            let count = ours.read_with(|mut socket| socket.read(&mut piece)).await.unwrap();
            piece[..count].to_vec()
        });
        let asked = async move {
            // By then the reader is waiting for its socket.
            sleep(Duration::from_millis(50)).await;
            theirs.write_all(b"x").unwrap();
            answer.await
        };
        assert_eq!(block_on(&executor, asked), b"x");
        assert_eq!(count.get(), 3);
        drop(busy);
    }

    #[test]
    fn a_future_that_wakes_itself_goes_on_with_nobody_beside_it() {
        let mut polls = 0;
        let woken = poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls > 200 { Poll::Ready(polls) } else { Poll::Pending }
        });
        assert_eq!(block_on(&LocalExecutor::new(), woken), 201);
    }
}
