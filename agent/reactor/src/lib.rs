//! Waits for descriptors and timers on one thread.
//!
//! The names are those of async-io, which always starts a second thread. [`block_on`] takes the
//! clock and a hook from its caller: this crate reads no clock and starts no thread.
//!
//! Descriptors are watched edge-triggered. [`Async`] registers its descriptor when an operation
//! first has to wait, so one that never waits costs no system call. An edge is remembered until an
//! operation returns `WouldBlock`.

mod timers;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

pub use timers::Timer;

/// Number of events taken from the kernel at a time.
const EVENTS: usize = 32;
/// Longest sleep before the next attempt while epoll_create1(2) fails.
const BLIND: Duration = Duration::from_secs(1);

thread_local! {
    // Never dropped, because at a thread's end an `Async` may be dropped after it.
    static REACTOR: ManuallyDrop<Reactor> = const { ManuallyDrop::new(Reactor::new()) };
}

struct Reactor {
    /// Created on first use.
    epoll: OnceCell<OwnedFd>,
    sources: RefCell<Vec<Option<Rc<Source>>>>,
    free: RefCell<Vec<usize>>,
}

#[derive(Debug, Default)]
struct Source {
    read: Direction,
    write: Direction,
    /// Whether the peer has hung up, which is final.
    hung_up: Cell<bool>,
    /// Whether `EPOLLOUT` is requested as well, which few descriptors need.
    is_for_both: Cell<bool>,
}

#[derive(Debug, Default)]
struct Direction {
    /// Whether there was an edge since an operation last returned `WouldBlock`.
    is_ready: Cell<bool>,
    /// The tasks to wake at the next edge. A task that stops waiting stays in the list until then.
    waiting: RefCell<Vec<Waker>>,
}

impl Direction {
    fn raise(&self) {
        self.is_ready.set(true);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Waits until an edge sets `condition`.
    async fn until(&self, condition: &Cell<bool>) {
        poll_fn(|context| {
            if condition.get() {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|other| other.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Reactor {
    const fn new() -> Self {
        Self {
            epoll: OnceCell::new(),
            sources: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
        }
    }

    fn epoll(&self) -> io::Result<&OwnedFd> {
        if let Some(epoll) = self.epoll.get() {
            return Ok(epoll);
        }
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(self.epoll.get_or_init(|| epoll))
    }

    /// Waits for events, at most for `limit`, and wakes the tasks that wait for them.
    fn wait(&self, epoll: &OwnedFd, limit: Option<Duration>) {
        // epoll counts milliseconds. Rounded down, the wait would end before the timer is due.
        let millis = limit.map(|limit| limit.as_nanos().div_ceil(1_000_000));
        let limit = millis.and_then(|millis| u64::try_from(millis).ok());
        let limit = limit.and_then(|millis| Timespec::try_from(Duration::from_millis(millis)).ok());
        let mut room = [MaybeUninit::uninit(); EVENTS];
        // After EINTR, the caller waits again.
        let Ok((events, _)) = epoll::wait(epoll, &mut room, limit.as_ref()) else { return };
        for event in &*events {
            let (flags, key) = (event.flags, event.data.u64());
            let source = usize::try_from(key).ok().and_then(|key| self.source(key));
            if let Some(source) = source {
                source.tell(flags);
            }
        }
    }

    fn source(&self, key: usize) -> Option<Rc<Source>> {
        self.sources.borrow().get(key).cloned().flatten()
    }

    fn add(&self, source: Rc<Source>) -> usize {
        let mut sources = self.sources.borrow_mut();
        let key = self.free.borrow_mut().pop().unwrap_or(sources.len());
        match sources.get_mut(key) {
            Some(place) => *place = Some(source),
            None => sources.push(Some(source)),
        }
        key
    }

    fn remove(&self, key: usize) {
        if let Some(place) = self.sources.borrow_mut().get_mut(key) {
            *place = None;
            self.free.borrow_mut().push(key);
        }
    }
}

impl Source {
    fn tell(&self, flags: EventFlags) {
        let has_ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if has_ended {
            self.hung_up.set(true);
        }
        if has_ended || flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::PRI) {
            self.read.raise();
        }
        if has_ended || flags.contains(EventFlags::OUT) {
            self.write.raise();
        }
    }
}

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

/// Runs a future to its end, and meanwhile waits for descriptors and timers.
///
/// `now` is the clock of [`Timer::at`]. `before_wait` is called before each wait, to run an
/// executor's tasks, and returns an upper bound for that wait.
pub fn block_on<T>(
    future: impl Future<Output = T>,
    now: impl Fn() -> Duration,
    mut before_wait: impl FnMut() -> Option<Duration>,
) -> T {
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
        let limit = before_wait();
        turn(if woken.0.load(Ordering::Relaxed) { Some(Duration::ZERO) } else { limit }, &now);
    }
}

/// Waits for the next timer, at most for `limit`; then wakes the tasks that can continue.
fn turn(limit: Option<Duration>, now: impl Fn() -> Duration) {
    let limit = match limit {
        Some(Duration::ZERO) => limit,
        _ => timers::next(&now).into_iter().chain(limit).min(),
    };
    REACTOR.with(|reactor| match reactor.epoll() {
        Ok(epoll) => reactor.wait(epoll, limit),
        // No descriptor is free. Tasks that wait for one get the error when they register it.
        Err(_) => std::thread::sleep(limit.unwrap_or(BLIND).min(BLIND)),
    });
    timers::expire(now);
}

/// A non-blocking descriptor that can be waited for.
#[derive(Debug)]
pub struct Async<T: AsFd> {
    io: T,
    /// The descriptor's key, once it is registered.
    key: Cell<Option<usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interest {
    Read,
    Write,
}

impl<T: AsFd> Async<T> {
    /// Makes a descriptor non-blocking and wraps it.
    pub fn new(io: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&io, true)?;
        Self::new_nonblocking(io)
    }

    /// Wraps a non-blocking descriptor.
    /// Errors: none. async-io, which registers the descriptor here, returns any error of epoll(7).
    pub fn new_nonblocking(io: T) -> io::Result<Self> {
        Ok(Self { io, key: Cell::new(None) })
    }

    /// Registers the descriptor now instead of at the first wait.
    pub fn watched(self) -> io::Result<Self> {
        self.register(Interest::Read)?;
        Ok(self)
    }

    /// Returns the descriptor.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// Runs `op` until it returns something other than `WouldBlock`, and waits for input in
    /// between. Errors: those of `op`, and of epoll(7). Cancellation: nothing is lost.
    pub async fn read_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.run(Interest::Read, op).await
    }

    /// Works like [`Async::read_with`], for an operation that waits for room to write. Errors:
    /// those of `op`, and of epoll(7). Cancellation: nothing is lost.
    pub async fn write_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.run(Interest::Write, op).await
    }

    /// Runs `op` once. After `WouldBlock`, [`Async::readable`] waits for the next edge.
    /// Errors: those of `op`.
    pub fn try_read<R>(&self, op: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        let done = op(&self.io);
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            && let Some(source) = self.registered()
        {
            source.read.is_ready.set(false);
        }
        done
    }

    async fn run<R>(
        &self,
        interest: Interest,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match op(&self.io) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => return done,
            }
            self.blocked(interest).await?;
        }
    }

    /// Waits for the next edge after `WouldBlock`.
    async fn blocked(&self, interest: Interest) -> io::Result<()> {
        if let Some(source) = self.registered() {
            source.direction(interest).is_ready.set(false);
        }
        self.ready(interest).await
    }

    /// Waits until there may be something to read. Returns immediately until [`Async::read_with`]
    /// or [`Async::try_read`] has met `WouldBlock`.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::Read).await
    }

    /// Waits until there may be room to write. Returns immediately until [`Async::write_with`] has
    /// met `WouldBlock`.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::Write).await
    }

    /// Waits until the peer has closed both directions or died, even while there is unread input.
    pub async fn hung_up(&self) -> io::Result<()> {
        let source = self.register(Interest::Read)?;
        source.read.until(&source.hung_up).await;
        Ok(())
    }

    async fn ready(&self, interest: Interest) -> io::Result<()> {
        let source = self.register(interest)?;
        let direction = source.direction(interest);
        direction.until(&direction.is_ready).await;
        Ok(())
    }

    fn registered(&self) -> Option<Rc<Source>> {
        self.key.get().and_then(|key| REACTOR.with(|reactor| reactor.source(key)))
    }

    /// Registers the descriptor for this direction unless it is registered. If it is ready already,
    /// epoll reports that as an edge.
    fn register(&self, interest: Interest) -> io::Result<Rc<Source>> {
        let for_both = interest == Interest::Write;
        let mut flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if for_both {
            flags |= EventFlags::OUT;
        }
        REACTOR.with(|reactor| {
            let epoll = reactor.epoll()?;
            if let Some((key, source)) =
                self.key.get().and_then(|key| Some((key, reactor.source(key)?)))
            {
                if for_both && !source.is_for_both.replace(true) {
                    epoll::modify(epoll, &self.io, EventData::new_u64(key as u64), flags)?;
                }
                return Ok(source);
            }
            let source = Rc::new(Source::default());
            source.is_for_both.set(for_both);
            let key = reactor.add(source.clone());
            match epoll::add(epoll, &self.io, EventData::new_u64(key as u64), flags) {
                Ok(()) => {
                    self.key.set(Some(key));
                    Ok(source)
                }
                Err(error) => {
                    reactor.remove(key);
                    Err(error.into())
                }
            }
        })
    }
}

impl Source {
    fn direction(&self, interest: Interest) -> &Direction {
        match interest {
            Interest::Read => &self.read,
            Interest::Write => &self.write,
        }
    }
}

impl<T: AsFd> Drop for Async<T> {
    fn drop(&mut self) {
        let Some(key) = self.key.get() else { return };
        REACTOR.with(|reactor| {
            reactor.remove(key);
            // A child process may hold the same open file description, which would stay registered.
            if let Ok(epoll) = reactor.epoll() {
                let _gone = epoll::delete(epoll, &self.io);
            }
        });
    }
}

#[cfg(test)]
mod tests;
