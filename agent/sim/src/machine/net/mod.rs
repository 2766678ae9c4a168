//! Sockets between host and guest and inside the guest, with faults. Bytes take time and are split
//! anywhere, and at each read and write a connection may break, stall or half-close.

use std::future::poll_fn;

mod local;

use crate::sim_prelude::*;

/// Maximum number of bytes in flight in one direction: more than any request of a guest.
const WINDOW: usize = 256 * 1024;
/// Capacity of a pipe, in bytes, as in Linux.
const PIPE: usize = 64 * 1024;
const BACKLOG: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A context id and a port.
    Vsock(u32, u32),
    Tcp(u16),
    Devlxd,
}

#[derive(Debug)]
pub(crate) struct Broken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoWay {
    Refused,
    Other,
}

pub(crate) struct Net {
    sim: Rc<Sim>,
    listeners: RefCell<BTreeMap<Place, Open>>,
    /// One wait in this many has a fault between host and guest; 0 for none.
    pub(crate) mishaps: Cell<u64>,
    pub(crate) mishaps_inside: Cell<u64>,
}

#[derive(Default)]
struct Queue {
    waiting: RefCell<VecDeque<Stream>>,
    signal: Signal,
}

/// An open listener; closed when all copies are dropped.
#[derive(Clone)]
pub(crate) struct Listener(Rc<Queue>);

/// A listener that is valid as long as it is open elsewhere.
#[derive(Clone, Default)]
pub(crate) struct Open(Weak<Queue>);

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Open {
    pub(crate) fn listener(&self) -> Option<Listener> {
        self.0.upgrade().map(Listener)
    }
}

/// One direction of a connection.
#[derive(Default)]
struct Way {
    /// Maximum number of bytes in flight.
    window: usize,
    /// Arrival and content.
    pieces: VecDeque<(Micros, Vec<u8>)>,
    unread: usize,
    /// Arrival of the latest piece.
    last: Micros,
    /// Time before which nothing arrives.
    stalled: Micros,
    end: End,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The end of a direction, and when the reader notices it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Closed(Micros),
    Reset,
}

/// One side of a connection; closed when dropped.
pub(crate) struct Stream {
    net: Rc<Net>,
    latency: Micros,
    /// Whether both ends are in the guest.
    is_inside: bool,
    /// Whether a fault has occurred. A connection has at most one, so that limits can be checked.
    has_stumbled: Rc<Cell<bool>>,
    receiving: Rc<RefCell<Way>>,
    sending: Rc<RefCell<Way>>,
}

impl Net {
    pub(crate) fn new(sim: Rc<Sim>) -> Rc<Self> {
        let (mishaps, mishaps_inside) = Default::default();
        Rc::new(Self { sim, listeners: RefCell::default(), mishaps, mishaps_inside })
    }

    /// Listens at this place; a previous listener there no longer does.
    pub(crate) fn listen(&self, place: Place) -> Listener {
        let listener = Listener(Rc::default());
        self.listeners.borrow_mut().insert(place, listener.open());
        listener
    }

    /// Returns the last listener at this place, which may be closed by now.
    pub(crate) fn last(&self, place: Place) -> Open {
        self.listeners.borrow().get(&place).cloned().unwrap_or_default()
    }

    /// Connects. Waits forever for a lost packet: the caller has a deadline.
    pub(crate) async fn connect(
        self: &Rc<Self>,
        place: Place,
        zone: Zone,
    ) -> Result<Stream, NoWay> {
        let dice = &self.sim.dice;
        let latency = match place {
            Place::Vsock(..) => dice.between(50, 2_000),
            Place::Devlxd | Place::Tcp(_) => dice.between(5, 50),
        };
        sleep(&self.sim, zone, 2 * latency).await;
        let is_inside = !matches!(place, Place::Vsock(..));
        if !is_inside && dice.one_in(self.mishaps.get()) {
            self.sim.trace("no connection", 0, 0);
            if dice.one_in(2) {
                return Err(NoWay::Other);
            }
            sleep(&self.sim, zone, 1000 * SECOND).await;
        }
        let Listener(queue) = self.last(place).listener().ok_or(NoWay::Refused)?;
        if queue.waiting.borrow().len() >= BACKLOG {
            return Err(NoWay::Other);
        }
        let (one, other) = self.sides(latency, is_inside, false);
        queue.waiting.borrow_mut().push_back(other);
        queue.signal.raise();
        Ok(one)
    }

    fn sides(
        self: &Rc<Self>,
        latency: Micros,
        is_inside: bool,
        has_stumbled: bool,
    ) -> (Stream, Stream) {
        let way = || Rc::new(RefCell::new(Way { window: WINDOW, ..Way::default() }));
        let (there, back) = (way(), way());
        let has_stumbled = Rc::new(Cell::new(has_stumbled));
        let side = |receiving: &Rc<_>, sending: &Rc<_>| Stream {
            net: self.clone(),
            latency,
            is_inside,
            has_stumbled: has_stumbled.clone(),
            receiving: Rc::clone(receiving),
            sending: Rc::clone(sending),
        };
        (side(&back, &there), side(&there, &back))
    }
}

impl Listener {
    pub(crate) fn open(&self) -> Open {
        Open(Rc::downgrade(&self.0))
    }

    pub(crate) async fn accept(&self) -> Stream {
        self.0.signal.until(|| self.0.waiting.borrow_mut().pop_front()).await
    }
}

impl Way {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn reset(&mut self) {
        self.end = End::Reset;
        self.pieces.clear();
        self.wake();
    }

    fn close(&mut self, when: Micros) {
        if self.end == End::Open {
            self.end = End::Closed(when.max(self.last));
            self.wake();
        }
    }
}

impl Stream {
    fn sim(&self) -> &Sim {
        &self.net.sim
    }

    /// Injects a fault by chance.
    fn stumble(&self) {
        let dice = &self.sim().dice;
        let net = &self.net;
        let rate = if self.is_inside { &net.mishaps_inside } else { &net.mishaps };
        if self.has_stumbled.get() || !dice.one_in(rate.get()) {
            return;
        }
        self.has_stumbled.set(true);
        let now = self.sim().now(Zone::Host);
        // Inside the guest nothing gets lost.
        match dice.below(if self.is_inside { 2 } else { 4 }) {
            0 => {
                self.sim().trace("reset", 0, 0);
                self.receiving.borrow_mut().reset();
                self.sending.borrow_mut().reset();
            }
            1 => {
                self.sim().trace("half-closed", 0, 0);
                self.sending.borrow_mut().close(now + self.latency);
            }
            2 => {
                let length = dice.pick(&[100 * MILLI, SECOND, 4 * SECOND, 20 * SECOND]);
                self.sim().trace("stalls", length, 0);
                let way = if dice.one_in(2) { &self.sending } else { &self.receiving };
                way.borrow_mut().stalled = now + dice.between(1, length);
            }
            _ => {
                self.sim().trace("black hole", 0, 0);
                self.sending.borrow_mut().stalled = Micros::MAX;
                self.receiving.borrow_mut().stalled = Micros::MAX;
            }
        }
    }

    /// Reads some bytes, often fewer than available; returns 0 at the end.
    pub(crate) async fn read(&self, out: &mut [u8]) -> Result<usize, Broken> {
        self.stumble();
        poll_fn(|context| self.poll_read(context, out)).await
    }

    /// Returns whether a read would wait, and registers the task to wake.
    fn is_empty(&self, waits: Option<&Context<'_>>) -> bool {
        let now = self.sim().now(Zone::Host);
        let mut way = self.receiving.borrow_mut();
        let arrives = match (way.pieces.front(), way.end) {
            (_, End::Reset) => return false,
            (Some((when, _)), _) => Some((*when).max(way.stalled)),
            (None, End::Closed(when)) => Some(when.max(way.stalled)),
            (None, End::Open) => None,
        };
        let is_empty = arrives.is_none_or(|when| when > now);
        if let Some(context) = waits.filter(|_| is_empty) {
            way.reader = Some(context.waker().clone());
            if let Some(when) = arrives.filter(|when| *when != Micros::MAX) {
                self.sim().wake_at(Zone::Host, when, context.waker());
            }
        }
        is_empty
    }

    fn poll_read(&self, context: &Context<'_>, out: &mut [u8]) -> Poll<Result<usize, Broken>> {
        if self.is_empty(Some(context)) {
            return Poll::Pending;
        }
        let mut way = self.receiving.borrow_mut();
        if way.end == End::Reset {
            return Poll::Ready(Err(Broken));
        }
        let Some((_, piece)) = way.pieces.front_mut() else { return Poll::Ready(Ok(0)) };
        let mut count = piece.len().min(out.len());
        if self.sim().dice.one_in(8) {
            count = count.min(1 + self.sim().dice.up_to(16));
        }
        out[..count].copy_from_slice(&piece[..count]);
        drop(piece.drain(..count));
        if piece.is_empty() {
            way.pieces.pop_front();
        }
        way.unread -= count;
        way.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(count))
    }

    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let count = self.write(bytes).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<usize, Broken> {
        self.stumble();
        poll_fn(|context| self.poll_write(context, bytes)).await
    }

    /// Limits the bytes that wait for the reader.
    pub(crate) fn limit(&self, window: usize) {
        self.sending.borrow_mut().window = window;
    }

    pub(crate) fn is_unread(&self) -> bool {
        let sending = self.sending.borrow();
        sending.end == End::Open && sending.unread > 0
    }

    /// Returns whether the peer sends no more.
    pub(crate) fn has_left(&self) -> bool {
        match self.receiving.borrow().end {
            End::Open => false,
            End::Closed(when) => when <= self.sim().now(Zone::Host),
            End::Reset => true,
        }
    }

    fn poll_write(&self, context: &Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Broken>> {
        let sim = self.sim();
        let mut way = self.sending.borrow_mut();
        if way.end != End::Open {
            return Poll::Ready(Err(Broken));
        }
        if way.unread >= way.window {
            way.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut count = bytes.len().min(way.window - way.unread);
        // A write that fits into a pipe is not split.
        if way.window != PIPE && sim.dice.one_in(16) {
            count = count.min(1 + sim.dice.up_to(count));
        }
        let arrival = (sim.now(Zone::Host) + self.latency).max(way.last);
        way.last = arrival;
        way.unread += count;
        way.pieces.push_back((arrival, bytes[..count].to_vec()));
        way.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(count))
    }

    pub(crate) async fn read_exact(&self, out: &mut [u8]) -> Result<(), Broken> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..]).await? {
                0 => return Err(Broken),
                count => filled += count,
            }
        }
        Ok(())
    }

    pub(crate) fn shutdown(&self) {
        self.sending.borrow_mut().close(self.sim().now(Zone::Host) + self.latency);
    }

    /// Returns whether the peer neither sends nor reads any longer.
    pub(crate) fn is_gone(&self) -> bool {
        self.sending.borrow().end == End::Reset
    }

    /// Waits until the peer neither sends nor reads any longer.
    pub(crate) async fn gone(&self) {
        poll_fn(|context| {
            let mut way = self.sending.borrow_mut();
            if way.end == End::Reset {
                return Poll::Ready(());
            }
            way.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let now = self.sim().now(Zone::Host);
        let mut sending = self.sending.borrow_mut();
        if sending.stalled > now {
            // The sender has disconnected, so the data never arrives.
            sending.reset();
        }
        sending.close(now + self.latency);
        drop(sending);
        // No reader is left for the remaining bytes.
        self.receiving.borrow_mut().reset();
    }
}
