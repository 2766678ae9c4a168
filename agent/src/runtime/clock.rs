//! Clocks and timers of the agent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::runtime::reactor::Timer;
use mote_core::time::Uptime;
use pin_project_lite::pin_project;
use smol::future::pending;

/// Pause between two attempts of [`look_for`].
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long to use the short interval: during boot, devices appear one after the other.
const BOOT: Duration = Duration::from_secs(10);
const BOOT_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between attempts after [`BOOT`].
pub(crate) const LATER_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the time since boot, including suspend, so that overdue work runs at the next wake-up.
pub(crate) fn now() -> Uptime {
    Uptime(crate::sys::since_boot())
}

/// Returns seconds and nanoseconds since 1970.
pub(crate) fn wall() -> (u64, u32) {
    let time = crate::sys::since_1970();
    (time.as_secs(), time.subsec_nanos())
}

/// Waits until `at`, or forever if it is `None`. The timer does not count a suspend: it may fire
/// late afterwards, but never early.
pub(crate) async fn until(at: Option<Uptime>) {
    match at {
        Some(at) => Timer::at(at.0).await,
        None => pending().await,
    }
}

pub(crate) async fn sleep(duration: Duration) {
    Timer::at((now() + duration).0).await;
}

/// Returns the time until the next look for something that is missing since `missing`.
pub(crate) fn look_interval(missing: Uptime) -> Duration {
    if now() - missing < BOOT { BOOT_LOOK_INTERVAL } else { LATER_LOOK_INTERVAL }
}

/// Calls `look` until it returns something, for the last time after `limit`. Blocks the thread, so
/// use this only before the executor runs.
pub(crate) fn look_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut found = None;
    repeat(limit, &mut || {
        found = look();
        found.is_some()
    });
    found
}

fn repeat(limit: Duration, look: &mut dyn FnMut() -> bool) {
    let end = now() + limit;
    loop {
        let late = now() >= end;
        if look() || late {
            return;
        }
        crate::sys::sleep(LOOK_INTERVAL);
    }
}

/// Returns the future's output, or `None` if it took longer than `limit` from the first pending
/// poll. Cancellation: the future is dropped at the limit.
pub(crate) fn within<F: Future>(
    limit: Duration,
    future: F,
) -> impl Future<Output = Option<F::Output>> {
    Within { future, limit, late: None }
}

pin_project! {
    /// A struct, because an async block would reserve space for the future twice.
    struct Within<F> {
        #[pin]
        future: F,
        limit: Duration,
        late: Option<Timer>,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Some(output));
        }
        let late = this.late.get_or_insert_with(|| Timer::at((now() + *this.limit).0));
        Pin::new(late).poll(context).map(|_| None)
    }
}
