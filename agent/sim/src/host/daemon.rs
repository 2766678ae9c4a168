//! The daemon, and its state that outlives a process (P§2.3, P§6).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use mote_core::flavour::Flavour;

use super::port::Qemu;
use crate::machine::{Certificate, Micros, Net, Process, Signal, Sim, Stream};
use crate::oracle::{Oracle, Word};

/// Properties of a daemon for a whole scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nature {
    pub(crate) flavour: Flavour,
    pub(crate) gives_tickets: bool,
    /// Upper bound of the agent's concurrent calls.
    pub(crate) most: usize,
}

pub(crate) struct Host {
    pub(crate) sim: Rc<Sim>,
    pub(crate) net: Rc<Net>,
    pub(crate) qemu: Rc<Qemu>,
    pub(crate) oracle: Rc<Oracle>,
    pub(crate) nature: Nature,
    pub(crate) process: Cell<Option<Process>>,
    /// Port on which it listens; each process has its own.
    pub(crate) port: Cell<u32>,
    pub(crate) certificate: Cell<Certificate>,
    pub(crate) started: Cell<bool>,
    /// The instance's state as it remembers it.
    pub(crate) keeps: Cell<Word>,
    /// Whether it answers 401 to everything.
    pub(crate) refuses: Cell<bool>,
    pub(crate) hangs: Cell<bool>,
    pub(crate) woken: Signal,
    /// Whether the guest's policy lets it run commands, and since when, monotonic.
    pub(crate) may_exec: Cell<bool>,
    pub(crate) may_since: Cell<Micros>,
    /// Tickets of this process, with their certificate.
    pub(crate) tickets: RefCell<BTreeMap<u64, Certificate>>,
    /// Full and resumed handshakes of the agent since the calm began.
    pub(crate) handshakes: [Cell<u64>; 2],
    pub(crate) calls: RefCell<Vec<Weak<Stream>>>,
}

impl Host {
    pub(crate) fn new(
        sim: Rc<Sim>,
        net: Rc<Net>,
        qemu: Rc<Qemu>,
        oracle: Rc<Oracle>,
        nature: Nature,
    ) -> Rc<Self> {
        Rc::new(Self {
            sim,
            net,
            qemu,
            oracle,
            nature,
            process: Cell::default(),
            port: Cell::new(4000),
            certificate: Cell::new(1),
            started: Cell::new(false),
            keeps: Cell::new(Word::Started),
            refuses: Cell::new(false),
            hangs: Cell::new(false),
            woken: Signal::default(),
            may_exec: Cell::new(true),
            may_since: Cell::default(),
            tickets: RefCell::default(),
            handshakes: Default::default(),
            calls: RefCell::default(),
        })
    }

    pub(crate) fn is_up(&self) -> bool {
        self.process.get().is_some()
    }

    pub(crate) fn die(&self) {
        let Some(process) = self.process.take() else { return };
        self.sim.trace("host dies", 0, 0);
        self.sim.kill(process);
        self.qemu.is_read.set(false);
        self.started.set(false);
        self.tickets.borrow_mut().clear();
    }

    /// Changes the certificate without a notification.
    pub(crate) fn renew(&self) {
        self.certificate.set(self.certificate.get() % 200 + 1);
        self.sim.trace("host certificate", self.certificate.get(), 0);
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.sim.trace(if hangs { "host hangs" } else { "host continues" }, 0, 0);
        self.hangs.set(hangs);
        self.woken.raise();
    }

    /// Waits until it does not hang.
    pub(crate) async fn alive(&self) {
        self.woken.until(|| (!self.hangs.get()).then_some(())).await;
    }
}
