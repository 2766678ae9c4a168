//! Clocks and timers: all of the agent's use goes through this file.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use crate::runtime::reactor::{Async, Timer};
use futures_lite::future::pending;
use mote_core::time::Uptime;
use pin_project_lite::pin_project;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

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
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    (time.as_secs(), time.subsec_nanos())
}

/// Waits until `at`, or for ever if it is `None`. The timer does not count time in suspend, so it may fire late
/// after a suspend, but never early.
pub(crate) async fn until(at: Option<Uptime>) {
    match at {
        Some(at) => Timer::at(at).await,
        None => pending().await,
    }
}

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    Timer::at(now() + duration).await;
}

/// Calls `jumped` after each jump of the wall clock, for ever. The end of a suspend is one: timers do not count the
/// time in it, so what came due meanwhile would be late by a whole interval. It wakes nobody at any other time.
/// Returns only if there is no such timer.
pub(crate) async fn jumps(jumped: impl Fn()) {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Realtime, flags).map(Async::new_nonblocking);
    let Ok(timer) = timer else { return };
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let never = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec: i64::MAX, ..zero } };
    loop {
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        // Takes the last jump off; says ECANCELED for it, but the timer is set all the same.
        let _canceled = timerfd_settime(timer.get_ref(), flags, &never);
        let read = timer.read_with(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?)).await;
        match read {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::CANCELED) => jumped(),
            Err(_) => return,
            // The end of time.
            Ok(_) => {}
        }
    }
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
        std::thread::sleep(LOOK_INTERVAL);
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
        let late = this.late.get_or_insert_with(|| Timer::at(now() + *this.limit));
        Pin::new(late).poll(context).map(|_| None)
    }
}
