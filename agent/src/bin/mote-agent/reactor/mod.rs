//! Waiting for descriptors and for the clock on the one thread: an epoll, a list of timers, and the
//! loop that runs a future on them. async-io does the same with a thread of its own beside ours, which
//! costs memory and a wake-up for most of our own; nothing here is ever woken from another thread.
//!
//! Descriptors are edge-triggered: only who was just refused (`WouldBlock`) may wait, and is told of the
//! next change. One that never has to wait is never registered.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_executor::LocalExecutor;
use mote_agent::time::Uptime;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::clock::now;
use crate::signal::Signal;

/// Tasks that run before we look at the kernel again.
const TASKS: usize = 64;
/// Events taken from the kernel at a time.
const EVENTS: usize = 32;

thread_local! {
    // Never dropped: who waits may outlive what is dropped at a thread's end.
    static REACTOR: ManuallyDrop<Reactor> = const { ManuallyDrop::new(Reactor::new()) };
}

struct Reactor {
    /// Made by the first who waits for a descriptor.
    epoll: OnceCell<OwnedFd>,
    /// Who waits for which descriptor, by key.
    sources: RefCell<Vec<Option<Rc<Source>>>>,
    /// Keys to be used again.
    free: RefCell<Vec<usize>>,
    /// The next to be due first. Nearly all are made with one of few durations, so new ones belong
    /// to the end.
    timers: RefCell<Vec<Due>>,
    /// Timers there have been.
    count: Cell<u64>,
}

/// A timer that somebody waits for.
struct Due {
    when: (Uptime, u64),
    waker: Waker,
}

/// What is known of a registered descriptor.
#[derive(Debug, Default)]
struct Source {
    readable: Signal,
    writable: Signal,
    /// Whether the kernel was asked for writability too, which most never wait for.
    both: Cell<bool>,
}

impl Reactor {
    const fn new() -> Self {
        Self {
            epoll: OnceCell::new(),
            sources: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            timers: RefCell::new(Vec::new()),
            count: Cell::new(0),
        }
    }

    fn epoll(&self) -> io::Result<&OwnedFd> {
        if let Some(epoll) = self.epoll.get() {
            return Ok(epoll);
        }
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(self.epoll.get_or_init(|| epoll))
    }

    /// Waits up to `limit` (for ever if there is none) and for no longer than the next timer, then
    /// wakes who is concerned.
    fn turn(&self, limit: Option<Duration>) {
        let next = self.timers.borrow().first().map(|timer| timer.when.0 - now());
        let limit = limit.into_iter().chain(next).min();
        match self.epoll() {
            Ok(epoll) => self.wait(epoll, limit),
            // No descriptor to be had: nothing to wait for but the clock.
            Err(_) => std::thread::sleep(limit.unwrap_or(Duration::from_secs(1))),
        }
        self.expire();
    }

    fn wait(&self, epoll: &OwnedFd, limit: Option<Duration>) {
        // The kernel counts milliseconds; before its time a timer would only be looked at again.
        let limit = limit.map(|limit| limit.as_nanos().div_ceil(1_000_000));
        let limit = limit.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut room = [MaybeUninit::uninit(); EVENTS];
        // Interrupted, or broken beyond repair: whoever waits tries again and learns why.
        let Ok((events, _)) = epoll::wait(epoll, &mut room, limit.as_ref()) else { return };
        for event in events {
            let (flags, key) = (event.flags, event.data.u64());
            let source = usize::try_from(key).ok().and_then(|key| self.source(key));
            let Some(source) = source else { continue };
            let ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            if ended || flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::PRI) {
                source.readable.raise();
            }
            if ended || flags.contains(EventFlags::OUT) {
                source.writable.raise();
            }
        }
    }

    fn source(&self, key: usize) -> Option<Rc<Source>> {
        self.sources.borrow().get(key).cloned().flatten()
    }

    /// Puts a source into a free place; gives its key.
    fn place(&self, source: Rc<Source>) -> usize {
        let mut sources = self.sources.borrow_mut();
        let key = self.free.borrow_mut().pop().unwrap_or(sources.len());
        match sources.get_mut(key) {
            Some(place) => *place = Some(source),
            None => sources.push(Some(source)),
        }
        key
    }

    /// Wakes whose time has come.
    fn expire(&self) {
        let mut timers = self.timers.borrow_mut();
        if timers.is_empty() {
            return;
        }
        let now = now();
        let due = timers.partition_point(|timer| timer.when.0 <= now);
        for timer in timers.drain(..due) {
            timer.waker.wake();
        }
    }
}

/// Wakes the loop: a task has something to do.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a future, and an executor's tasks beside it, until the future is ready.
///
/// The executor's own `run` does the same for several threads, with a queue for each.
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
        let busy = (0..TASKS).all(|_| executor.try_tick());
        let idle = !busy && !woken.0.load(Ordering::Relaxed);
        REACTOR.with(|reactor| reactor.turn((!idle).then_some(Duration::ZERO)));
    }
}

/// A non-blocking descriptor that can be waited for.
#[derive(Debug)]
pub(crate) struct Async<T: AsFd> {
    io: T,
    /// Its key, once somebody had to wait.
    registered: Cell<Option<usize>>,
}

/// What to wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl<T: AsFd> Async<T> {
    /// Takes a descriptor and makes it non-blocking.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(io: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&io, true)?;
        Ok(Self::new_nonblocking(io))
    }

    /// Takes one that is non-blocking already.
    pub(crate) fn new_nonblocking(io: T) -> Self {
        Self { io, registered: Cell::new(None) }
    }

    /// The descriptor.
    pub(crate) fn get_ref(&self) -> &T {
        &self.io
    }

    /// Does `op`, as soon as it does not say `WouldBlock`.
    ///
    /// # Errors
    /// `op`'s.
    ///
    /// # Cancellation
    /// Loses nothing.
    pub(crate) async fn read_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.with(Direction::Read, op).await
    }

    /// The same with what has to wait for room.
    ///
    /// # Errors
    /// `op`'s.
    pub(crate) async fn write_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.with(Direction::Write, op).await
    }

    async fn with<R>(
        &self,
        direction: Direction,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match op(&self.io) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => return done,
            }
            self.change(direction).await?;
        }
    }

    /// Waits for the next change after there was nothing to read.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.change(Direction::Read).await
    }

    /// Waits for the next change after there was no room to write.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.change(Direction::Write).await
    }

    async fn change(&self, direction: Direction) -> io::Result<()> {
        let source = REACTOR.with(|reactor| self.register(reactor, direction))?;
        let signal = match direction {
            Direction::Read => &source.readable,
            Direction::Write => &source.writable,
        };
        signal.after(signal.seen()).await;
        Ok(())
    }

    /// Registers for what is to be waited for, if that was not done before. What is there already
    /// counts as a change then.
    fn register(&self, reactor: &Reactor, direction: Direction) -> io::Result<Rc<Source>> {
        let mut flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if direction == Direction::Write {
            flags |= EventFlags::OUT;
        }
        let known = self.registered.get().and_then(|key| Some((key, reactor.source(key)?)));
        if let Some((key, source)) = known {
            if direction == Direction::Write && !source.both.replace(true) {
                let data = EventData::new_u64(key as u64);
                epoll::modify(reactor.epoll()?, &self.io, data, flags)?;
            }
            return Ok(source);
        }
        let epoll = reactor.epoll()?;
        let source = Rc::new(Source::default());
        source.both.set(direction == Direction::Write);
        let key = reactor.place(source.clone());
        self.registered.set(Some(key));
        if let Err(error) = epoll::add(epoll, &self.io, EventData::new_u64(key as u64), flags) {
            self.forget(reactor);
            return Err(error.into());
        }
        Ok(source)
    }

    fn forget(&self, reactor: &Reactor) {
        let Some(key) = self.registered.take() else { return };
        if let Some(place) = reactor.sources.borrow_mut().get_mut(key) {
            *place = None;
            reactor.free.borrow_mut().push(key);
        }
        // Said, since a child may hold the same open file and keep it registered.
        if let Ok(epoll) = reactor.epoll() {
            _ = epoll::delete(epoll, &self.io);
        }
    }
}

impl<T: AsFd> Drop for Async<T> {
    fn drop(&mut self) {
        REACTOR.with(|reactor| self.forget(reactor));
    }
}

/// A time to wait for.
pub(crate) struct Timer {
    at: Uptime,
    /// Tells it apart from others of the same time; 0 as long as it is in no list.
    id: u64,
}

impl Timer {
    /// Waits until that time.
    pub(crate) fn new(at: Uptime) -> Self {
        Self { at, id: 0 }
    }

    fn find(&self, timers: &[Due]) -> Option<usize> {
        timers.binary_search_by_key(&(self.at, self.id), |timer| timer.when).ok()
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        REACTOR.with(|reactor| {
            let mut timers = reactor.timers.borrow_mut();
            if self.id == 0 {
                self.id = reactor.count.get() + 1;
                reactor.count.set(self.id);
                let when = (self.at, self.id);
                let place = timers.partition_point(|timer| timer.when < when);
                timers.insert(place, Due { when, waker: context.waker().clone() });
                return Poll::Pending;
            }
            // Whose time has come is not in the list any more.
            let Some(timer) = self.find(&timers).and_then(|at| timers.get_mut(at)) else {
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
        REACTOR.with(|reactor| {
            let mut timers = reactor.timers.borrow_mut();
            if let Some(at) = self.find(&timers) {
                timers.remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests;
