//! The reactor: mote-reactor or, with the feature `async-io`, the crate async-io; and jumps of the
//! wall clock.

#[cfg(feature = "async-io")]
mod async_io;

use std::io;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

#[cfg(feature = "async-io")]
pub(crate) use self::async_io::{Async, Timer, block_on};
#[cfg(not(feature = "async-io"))]
pub(crate) use mote_reactor::{Async, Timer, block_on};

/// Calls `jumped` after each jump of the wall clock, including the end of a suspend: timers do not
/// count suspend, so overdue work would be late by up to an interval. Returns only if the kernel
/// has no such timer.
pub(crate) async fn jumps(jumped: impl Fn()) {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Realtime, flags).map_err(io::Error::from);
    let Ok(timer) = timer.and_then(Async::new_nonblocking) else { return };
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let never = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec: i64::MAX, ..zero } };
    loop {
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        // Acknowledges the last jump: returns ECANCELED for it, but still sets the timer.
        let _canceled = timerfd_settime(timer.get_ref(), flags, &never);
        let read = timer.read_with(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?)).await;
        match read {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::CANCELED) => jumped(),
            Err(_) => return,
            // The timer reached the largest possible time.
            Ok(_) => {}
        }
    }
}
