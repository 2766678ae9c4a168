//! The only reader of the clocks, and the only maker of timers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_lite::future::pending;
use mote_agent::time::Uptime;
use pin_project_lite::pin_project;

use crate::reactor::Timer;

/// Between two looks of [`look_for`].
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Time since boot. Counts suspended time too, so that a resumed VM announces itself at once.
pub(crate) fn now() -> Uptime {
    Uptime(crate::sys::since_boot())
}

/// Seconds and nanoseconds since 1970.
pub(crate) fn wall() -> (u64, u32) {
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    (time.as_secs(), time.subsec_nanos())
}

/// Waits until `at`; for ever if there is no such time.
pub(crate) async fn until(at: Option<Uptime>) {
    match at {
        Some(at) => Timer::new(at).await,
        None => pending().await,
    }
}

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    Timer::new(now() + duration).await;
}

/// Looks until there is something, and once more at the limit. Keeps the thread: for the start, when
/// there is nobody else yet.
pub(crate) fn look_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = now() + limit;
    loop {
        let late = now() >= end;
        let found = look();
        if found.is_some() || late {
            return found;
        }
        std::thread::sleep(LOOK);
    }
}

/// The future's output, or `None` if it took longer than `limit`. The time begins when there is
/// something to wait for.
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
    /// Written out, since async blocks would hold the future twice.
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
        let late = this.late.get_or_insert_with(|| Timer::new(now() + *this.limit));
        Pin::new(late).poll(context).map(|()| None)
    }
}
