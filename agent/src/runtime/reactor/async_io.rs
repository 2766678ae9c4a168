//! The crate async-io with mote-reactor's interface. Its timers do not count a suspend, and fire
//! late after it.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this module exists for them"
)]

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::since_boot;

/// Interval between polls for hang-ups, which async-io does not report while input is unread.
const HANG_UP_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    async_io::block_on(future)
}

/// [`async_io::Async`] with the additions of mote-reactor.
pub(crate) struct Async<T>(async_io::Async<T>);

impl<T: AsFd> Async<T> {
    pub(crate) fn new(io: T) -> io::Result<Self> {
        async_io::Async::new(io).map(Self)
    }

    pub(crate) fn new_nonblocking(io: T) -> io::Result<Self> {
        async_io::Async::new_nonblocking(io).map(Self)
    }

    pub(crate) fn watched(self) -> io::Result<Self> {
        Ok(self)
    }

    pub(crate) fn try_read<R>(&self, op: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        op(self.get_ref())
    }

    pub(crate) async fn hung_up(&self) -> io::Result<()> {
        loop {
            let mut state = [PollFd::new(self.get_ref(), PollFlags::empty())];
            if poll(&mut state, Some(&Timespec::default()))? > 0 {
                return Ok(());
            }
            async_io::Timer::after(HANG_UP_INTERVAL).await;
        }
    }
}

impl<T> Deref for Async<T> {
    type Target = async_io::Async<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// [`async_io::Timer`] on the clock of `sys::since_boot`.
pub(crate) struct Timer(async_io::Timer);

impl Timer {
    pub(crate) fn at(at: Duration) -> Self {
        Self(async_io::Timer::after(at.saturating_sub(since_boot())))
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}
