//! Waits for descriptors and for the clock, on the one thread: who waits is woken by [`turn`], which the loop of
//! `runtime/run` calls when no task is ready.
//!
//! Descriptors are watched edge-triggered: each is registered once, when something first has to wait for it, and one
//! that never has to wait never is. What an edge has told is remembered until an operation says `WouldBlock`.

pub(crate) mod jumps;
mod timers;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use mote_core::time::Uptime;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::runtime::clock::now;
use crate::runtime::wake::Signal;
use crate::sys::heap;
pub(crate) use timers::Timer;

/// Events taken from the kernel at a time.
const EVENTS: usize = 32;
/// How long freed memory is kept for what comes next, at least. A wait that is shorter than those of the kernel's own timers costs:
/// the clock's device is set anew for each, under emulation in 0.2 ms.
const REST: Duration = Duration::from_millis(1500);
/// Pause between two looks at the clock while there is no descriptor for an epoll.
const BLIND: Duration = Duration::from_secs(1);

thread_local! {
    // Never dropped: what waits may be dropped after it at a thread's end.
    static REACTOR: ManuallyDrop<Reactor> = const { ManuallyDrop::new(Reactor::new()) };
}

struct Reactor {
    /// Made for the first descriptor that is waited for.
    epoll: OnceCell<OwnedFd>,
    /// The registered descriptors, by key.
    sources: RefCell<Vec<Option<Rc<Source>>>>,
    /// Keys that are free.
    free: RefCell<Vec<usize>>,
    /// When kept memory is given back.
    rest: Cell<Uptime>,
    /// When the last wait began.
    waited: Cell<Uptime>,
}

/// What is known of a registered descriptor.
#[derive(Debug, Default)]
struct Source {
    read: Direction,
    write: Direction,
    /// Whether the peer has hung up, which stays so.
    hung_up: Cell<bool>,
    /// Whether the kernel was asked for room to write too, which most never wait for.
    is_for_both: Cell<bool>,
}

/// Reading or writing.
#[derive(Debug, Default)]
struct Direction {
    /// Whether there was an edge that no operation has used up.
    is_ready: Cell<bool>,
    changed: Signal,
}

impl Direction {
    fn raise(&self) {
        self.is_ready.set(true);
        self.changed.raise();
    }
}

impl Reactor {
    const fn new() -> Self {
        Self {
            epoll: OnceCell::new(),
            sources: RefCell::new(Vec::new()),
            rest: Cell::new(Uptime(Duration::ZERO)),
            waited: Cell::new(Uptime(Duration::ZERO)),
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

    /// Returns how many descriptors there was something of.
    fn wait(&self, epoll: &OwnedFd, limit: Option<Duration>) {
        // The kernel counts milliseconds; before its time a timer would only be looked at again.
        let millis = limit.map(|limit| limit.as_nanos().div_ceil(1_000_000));
        let limit = millis.and_then(|millis| u64::try_from(millis).ok());
        let limit = limit.and_then(|millis| Timespec::try_from(Duration::from_millis(millis)).ok());
        let mut room = [MaybeUninit::uninit(); EVENTS];
        // Interrupted: the loop comes again.
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

    /// Adds a source; returns its key.
    fn add(&self, source: Rc<Source>) -> usize {
        let mut sources = self.sources.borrow_mut();
        let key = self.free.borrow_mut().pop().unwrap_or(sources.len());
        match sources.get_mut(key) {
            Some(place) => *place = Some(source),
            None => sources.push(Some(source)),
        }
        key
    }

    /// Gives kept memory back if it is time; how long to wait at most, if records are kept. What a call or two leave is
    /// not worth a wake-up: it goes when something else wakes the agent, as its look at the status does each 30 s.
    fn rest(&self) -> Option<Duration> {
        let now = now();
        // Who did one thing after a long wait will wait long again.
        let was_asleep = now - self.waited.replace(now) >= REST;
        if now < self.rest.get() && !was_asleep {
            // Not what is left until then, which is short in the end.
            return heap::keeps_records().then_some(REST);
        }
        heap::rest();
        self.rest.set(now + REST);
        None
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

/// Waits for the kernel, no longer than until the next timer, or not at all if `is_busy`; then wakes who was waited
/// for.
pub(super) fn turn(is_busy: bool) {
    REACTOR.with(|reactor| {
        let mut limit = if is_busy { Some(Duration::ZERO) } else { timers::next() };
        if !is_busy && let Some(most) = reactor.rest() {
            limit = Some(limit.map_or(most, |limit| limit.min(most)));
        }
        match reactor.epoll() {
            Ok(epoll) => reactor.wait(epoll, limit),
            // No descriptor to be had: whoever waits for one learns it when it is registered.
            Err(_) => std::thread::sleep(limit.unwrap_or(BLIND).min(BLIND)),
        }
    });
    timers::expire();
}

/// A non-blocking descriptor that can be waited for.
#[derive(Debug)]
pub(crate) struct Async<T: AsFd> {
    io: T,
    /// Its key, once something had to wait for it.
    key: Cell<Option<usize>>,
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interest {
    Read,
    Write,
}

impl<T: AsFd> Async<T> {
    /// Takes a descriptor, and makes it non-blocking.
    ///
    /// # Errors
    /// Any error of ioctl(2).
    pub(crate) fn new(io: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&io, true)?;
        Ok(Self::new_nonblocking(io))
    }

    /// Takes one that is non-blocking.
    pub(crate) fn new_nonblocking(io: T) -> Self {
        Self { io, key: Cell::new(None) }
    }

    /// Registers it at once, in place of the first wait.
    ///
    /// # Errors
    /// Any error of epoll(7): it is nothing that can be waited for.
    pub(crate) fn watched(self) -> io::Result<Self> {
        self.register(Interest::Read)?;
        Ok(self)
    }

    /// The descriptor.
    pub(crate) fn get_ref(&self) -> &T {
        &self.io
    }

    /// Runs `op` until it says something else than `WouldBlock`.
    ///
    /// # Errors
    /// Those of `op`, and of epoll(7).
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub(crate) async fn read_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.run(Interest::Read, op).await
    }

    /// The same for what waits for room.
    ///
    /// # Errors
    /// As [`Async::read_with`].
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub(crate) async fn write_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.run(Interest::Write, op).await
    }

    /// Runs `op` once.
    ///
    /// # Errors
    /// Those of `op`; after `WouldBlock` [`Async::readable`] waits for the next change.
    pub(crate) fn try_read<R>(&self, op: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
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
            if let Some(source) = self.registered() {
                source.direction(interest).is_ready.set(false);
            }
            self.ready(interest).await?;
        }
    }

    /// Waits until there may be something to read: returns at once, each time, until [`Async::read_with`] or
    /// [`Async::try_read`] has found nothing.
    ///
    /// # Errors
    /// Any error of epoll(7).
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::Read).await
    }

    /// Waits until there may be room to write: as [`Async::readable`], with [`Async::write_with`].
    ///
    /// # Errors
    /// Any error of epoll(7).
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::Write).await
    }

    /// Waits until the peer has closed both directions, or is gone.
    ///
    /// # Errors
    /// Any error of epoll(7).
    pub(crate) async fn hung_up(&self) -> io::Result<()> {
        let source = self.register(Interest::Read)?;
        source.read.changed.until(|| source.hung_up.get().then_some(())).await;
        Ok(())
    }

    async fn ready(&self, interest: Interest) -> io::Result<()> {
        let source = self.register(interest)?;
        let direction = source.direction(interest);
        direction.changed.until(|| direction.is_ready.get().then_some(())).await;
        Ok(())
    }

    fn registered(&self) -> Option<Rc<Source>> {
        self.key.get().and_then(|key| REACTOR.with(|reactor| reactor.source(key)))
    }

    /// Registers it for what is to be waited for, if that was not done before. What is ready already comes as an edge
    /// then.
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
            // A child may hold the same open file, which would keep it registered.
            if let Ok(epoll) = reactor.epoll() {
                let _gone = epoll::delete(epoll, &self.io);
            }
        });
    }
}

#[cfg(test)]
mod tests;
