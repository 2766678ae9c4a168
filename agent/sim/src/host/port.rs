//! QEMU's status port (P§2.1 to P§2.3): a ring that outlives daemon and agent, throttled events,
//! and the kind of port that carries bytes both ways (decisions §1).

use std::fmt;

use mote_qemu::{Reader, Ring, Sent, Throttle};

use crate::sim_prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// 16 bytes; the last complete line counts.
    Ring,
    /// 16 KiB; of several lines the last but one counts.
    LongRing,
    /// Bytes in both directions.
    Line,
}

impl Backend {
    fn reader(self) -> Reader {
        match self {
            Self::Ring => Reader::Lxd,
            Self::LongRing | Self::Line => Reader::Incus,
        }
    }
}

/// The other end of the status port and the dummy port.
pub(crate) struct Qemu {
    sim: Rc<Sim>,
    process: Process,
    pub(crate) backend: Backend,
    ring: RefCell<Ring>,
    last: RefCell<Vec<u8>>,
    to_guest: RefCell<Vec<u8>>,
    changed: Signal,
    /// Identity of the port, which changes when the port reappears.
    number: Cell<u64>,
    is_there: Cell<bool>,
    is_open: Cell<bool>,
    events: [Cell<Throttle>; 2],
    /// When the guest last wrote or tried to write, and since when it has been able to; monotonic.
    pub(crate) written: Cell<Micros>,
    pub(crate) since: Cell<Micros>,
    /// How long the port had been absent before that, on the guest's clock.
    pub(crate) away: Cell<Micros>,
    vanished: Cell<Micros>,
    pub(crate) event: Signal,
    /// Whether a daemon is connected.
    pub(crate) is_read: Cell<bool>,
    read_since: Cell<Micros>,
}

/// Interval, with some margin, at which the guest checks whether a line is read.
const READ: Micros = 200 * MILLI;

const STATUS: usize = 0;
const DUMMY: usize = 1;

impl Qemu {
    pub(crate) fn new(sim: Rc<Sim>, backend: Backend) -> Rc<Self> {
        Rc::new(Self {
            process: sim.process(Zone::Host),
            sim,
            backend,
            ring: RefCell::new(Ring::new(backend.reader())),
            last: RefCell::default(),
            to_guest: RefCell::default(),
            changed: Signal::default(),
            number: Cell::new(1),
            is_there: Cell::new(true),
            is_open: Cell::new(false),
            events: Default::default(),
            written: Cell::default(),
            since: Cell::default(),
            away: Cell::default(),
            vanished: Cell::default(),
            event: Signal::default(),
            is_read: Cell::new(false),
            read_since: Cell::default(),
        })
    }

    pub(crate) fn plug(&self, is_there: bool) {
        self.sim.trace(if is_there { "port is back" } else { "port vanishes" }, 0, 0);
        let was_there = self.is_there.replace(is_there);
        self.number.set(self.number.get() + 1);
        self.is_open.set(false);
        let was_seen = self.written.get() >= self.since.replace(self.sim.awake());
        let now = self.sim.now(Zone::Guest);
        if is_there {
            self.away.set(now.saturating_sub(self.vanished.get()));
        } else if was_there && was_seen {
            // If the guest has not noticed the port in between, it has been absent all the time.
            self.vanished.set(now);
        }
        self.to_guest.borrow_mut().clear();
        self.changed.raise();
    }

    fn raise(self: &Rc<Self>, port: usize) {
        let (now, mut throttle) = (self.sim.now(Zone::Host), self.events[port].get());
        let sent = throttle.event(now);
        self.events[port].set(throttle);
        match sent {
            Sent::Never => {}
            Sent::Now => self.event.raise(),
            Sent::At(end) => {
                let qemu = self.clone();
                self.sim.spawn(self.process, async move {
                    sleep(&qemu.sim, Zone::Host, end - now).await;
                    throttle.over(qemu.sim.now(Zone::Host));
                    qemu.events[port].set(throttle);
                    qemu.event.raise();
                });
            }
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.is_there.get()
    }

    pub(crate) fn kick(self: &Rc<Self>) {
        self.raise(DUMMY);
    }

    /// Returns whether the guest's last message was `word`, or could not be sent: the port has
    /// changed after `since` or shortly before it, or nothing reads the port.
    pub(crate) fn has_received(&self, word: &[u8], since: Micros) -> bool {
        let is_settled = self.is_there.get() && self.since.get() + 2 * SECOND < since;
        let is_read = self.is_read.get() && self.read_since.get() + READ < self.sim.awake();
        let is_heard = self.backend != Backend::Line || is_read;
        !is_settled || !is_heard || self.last.borrow().ends_with(word)
    }

    pub(crate) fn begin_to_read(&self) {
        self.is_read.set(true);
        self.read_since.set(self.sim.awake());
    }

    /// Returns what the daemon reads, and removes it.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.ring.borrow_mut().take()
    }

    pub(crate) fn send(&self, line: &str) {
        if self.is_there.get() && self.backend == Backend::Line {
            self.to_guest.borrow_mut().extend_from_slice(line.as_bytes());
            self.changed.raise();
        }
    }
}

/// The guest's side; closed when dropped.
pub(crate) struct Port {
    qemu: Rc<Qemu>,
    number: u64,
}

impl fmt::Debug for Port {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Port")
    }
}

impl Port {
    /// Opens the port, unless it is absent or already open.
    pub(crate) fn open(qemu: &Rc<Qemu>) -> Option<Self> {
        if !qemu.is_there.get() || qemu.is_open.replace(true) {
            return None;
        }
        qemu.raise(STATUS);
        Some(Self { qemu: qemu.clone(), number: qemu.number.get() })
    }

    fn is_gone(&self) -> bool {
        self.number != self.qemu.number.get()
    }

    /// Writes a whole line or nothing.
    pub(crate) fn write(&self, line: &[u8]) -> Option<()> {
        let qemu = &self.qemu;
        let mut ring = qemu.ring.borrow_mut();
        qemu.written.set(qemu.sim.awake());
        let is_line = qemu.backend == Backend::Line;
        let is_full = is_line && (!qemu.is_read.get() || ring.len() > 512);
        if self.is_gone() || is_full {
            return None;
        }
        ring.write(line);
        *qemu.last.borrow_mut() = line.to_vec();
        if is_line {
            qemu.event.raise();
        }
        Some(())
    }

    /// Reads pending bytes; returns 0 if nothing is connected to the other end of a line.
    pub(crate) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        let qemu = &self.qemu;
        if self.is_gone() {
            return Err(Errno::NODEV.into());
        }
        let mut bytes = qemu.to_guest.borrow_mut();
        let count = bytes.len().min(out.len());
        out[..count].copy_from_slice(&bytes[..count]);
        bytes.drain(..count);
        match count {
            0 if qemu.backend == Backend::Line && !qemu.is_read.get() => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    pub(crate) fn seen(&self) -> u64 {
        self.qemu.changed.seen()
    }

    /// Waits for bytes, or until the port is gone.
    pub(crate) async fn changed(&self, seen: u64) {
        self.qemu.changed.after(seen).await;
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if !self.is_gone() {
            self.qemu.is_open.set(false);
            self.qemu.raise(STATUS);
        }
    }
}
