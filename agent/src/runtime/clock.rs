//! Clocks and timers: all of the agent's use goes through this file.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::runtime::reactor::Timer;
use mote_core::time::Uptime;
use pin_project_lite::pin_project;
use smol::future::pending;

/// Pause between two tries of [`look_for`].
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long what is missing is looked for at the short interval: at boot devices appear one after the other.
const BOOT: Duration = Duration::from_secs(10);
/// Interval between looks for what is missing during [`BOOT`].
const BOOT_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between looks for what is missing afterwards.
pub(crate) const LATER_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Time since boot, including time in suspend, so that what came due in suspend is done at the next wake-up.
pub(crate) fn now() -> Uptime {
    Uptime(crate::sys::since_boot())
}

/// Seconds and nanoseconds since 1970.
pub(crate) fn wall() -> (u64, u32) {
    let time = crate::sys::since_1970();
    (time.as_secs(), time.subsec_nanos())
}

/// Waits until `at`, or for ever if it is `None`. The timer does not count time in suspend, so it may fire late
/// after a suspend, but never early.
pub(crate) async fn until(at: Option<Uptime>) {
    match at {
        Some(at) => Timer::at(at.0).await,
        None => pending().await,
    }
}

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    Timer::at((now() + duration).0).await;
}

/// Time until the next look for what has been missing since then.
pub(crate) fn look_interval(missing: Uptime) -> Duration {
    if now() - missing < BOOT { BOOT_LOOK_INTERVAL } else { LATER_LOOK_INTERVAL }
}

/// Calls `look` until it returns something, the last time after `limit`. Blocks the thread: only for the start,
/// before there are tasks.
pub(crate) fn look_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = now() + limit;
    loop {
        let late = now() >= end;
        let found = look();
        if found.is_some() || late {
            return found;
        }
        crate::sys::sleep(LOOK_INTERVAL);
    }
}

/// The future's output, or `None` if it took longer than `limit`. The time is counted from the first poll
/// that is pending.
///
/// # Cancellation
/// The future is dropped at the limit.
pub(crate) fn within<F: Future>(
    limit: Duration,
    future: F,
) -> impl Future<Output = Option<F::Output>> {
    Within { future, limit, late: None }
}

pin_project! {
    /// Written by hand, since an async block would have room for the future twice.
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
