//! The only reader of the clocks, and the only maker of timers.

use std::future::Future;
use std::time::{Duration, Instant};

use async_io::Timer;
use futures_lite::FutureExt;
use mote_agent::time::Uptime;
use rustix::time::{ClockId, clock_gettime};

/// Time since boot. Counts suspended time too, so that a resumed VM announces itself at once.
pub(crate) fn now() -> Uptime {
    let time = clock_gettime(ClockId::Boottime);
    Uptime(Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    ))
}

/// Seconds and nanoseconds since 1970.
pub(crate) fn wall() -> (u64, u32) {
    let time = clock_gettime(ClockId::Realtime);
    (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Waits until `at`; for ever if there is no such time.
pub(crate) async fn until(at: Option<Uptime>) {
    match at {
        Some(at) => _ = Timer::at(Instant::now() + (at - now())).await,
        None => _ = Timer::never().await,
    }
}

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    _ = Timer::after(duration).await;
}

/// The future's output, or `None` if it took longer than `limit`.
///
/// # Cancellation
/// The future is dropped at the limit.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let late = async {
        sleep(limit).await;
        None
    };
    async { Some(future.await) }.or(late).await
}
