//! The daemon: its state that outlives a process, and its main loop, which reads the port and
//! reports its address to the agent (P§2.3, P§3.2, P§6).

use super::port::{Backend, Qemu};
use super::{calls, server};
use crate::sim_prelude::*;

/// Properties of a daemon for a whole scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nature {
    pub(crate) flavour: Flavour,
    pub(crate) gives_tickets: bool,
    /// Maximum number of concurrent calls by the agent.
    pub(crate) most: usize,
}

pub(crate) struct Host {
    pub(crate) sim: Rc<Sim>,
    pub(crate) net: Rc<Net>,
    pub(crate) qemu: Rc<Qemu>,
    pub(crate) oracle: Rc<Oracle>,
    pub(crate) nature: Nature,
    pub(crate) process: Cell<Option<Process>>,
    /// Port on which the daemon listens; each process has its own.
    pub(crate) port: Cell<u32>,
    pub(crate) certificate: Cell<Certificate>,
    pub(crate) started: Cell<bool>,
    /// The instance's state as the daemon remembers it.
    pub(crate) keeps: Cell<Word>,
    /// Whether the daemon answers 401 to everything.
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

    pub(crate) async fn alive(&self) {
        self.woken.until(|| (!self.hangs.get()).then_some(())).await;
    }
}

/// Interval at which the ring is read without an event.
const LOOK: Micros = 10 * SECOND;

impl Host {
    pub(crate) fn start(self: &Rc<Self>) {
        self.die();
        self.port.set(self.port.get() + 1);
        self.sim.trace("host is up", self.port.get().into(), self.certificate.get());
        let process = self.sim.process(Zone::Host);
        self.process.set(Some(process));
        self.keeps.set(Word::Started);
        let host = self.clone();
        self.sim.spawn(process, async move { server::run(host).await });
        let host = self.clone();
        self.sim.spawn(process, async move { host.monitor().await });
        let host = self.clone();
        self.sim.spawn(process, async move { calls::now_and_then(host).await });
    }

    async fn monitor(self: &Rc<Self>) {
        sleep(&self.sim, Zone::Host, self.sim.dice.between(MILLI, 100 * MILLI)).await;
        self.qemu.begin_to_read();
        if self.qemu.backend == Backend::Line {
            // With this kind of port, a daemon notifies every guest.
            self.qemu.send(&self.connect_line());
        }
        loop {
            let seen = self.qemu.event.seen();
            self.alive().await;
            self.read();
            let event = async {
                self.qemu.event.after(seen).await;
                sleep(&self.sim, Zone::Host, self.sim.dice.between(200, 3000)).await;
            };
            either(event, sleep(&self.sim, Zone::Host, LOOK)).await;
        }
    }

    fn connect_line(&self) -> String {
        let print = format!("{:02x}", self.certificate.get()).repeat(32);
        format!("CONNECT 2:{} {print}\n", self.port.get())
    }

    fn read(self: &Rc<Self>) {
        let bytes = self.qemu.take();
        let text = String::from_utf8_lossy(&bytes);
        let Some((whole, _)) = text.rsplit_once('\n') else { return };
        let lines: Vec<_> = whole.split('\n').collect();
        match self.qemu.backend {
            Backend::Ring => self.status(lines[lines.len() - 1]),
            Backend::LongRing => self.status(lines[lines.len().saturating_sub(2)]),
            Backend::Line => {
                if lines.contains(&"STARTED") {
                    self.qemu.send(&self.connect_line());
                }
            }
        }
    }

    fn status(self: &Rc<Self>, line: &str) {
        match line {
            "STARTED" if !self.started.replace(true) => {
                self.sim.trace("host sees STARTED", 0, 0);
                let host = self.clone();
                let process = self.process.get().expect("the one that reads");
                self.sim.spawn(process, async move { calls::put(&host).await });
            }
            "STOPPED" => {
                self.sim.trace("host sees STOPPED", 0, 0);
                self.started.set(false);
            }
            _ => {}
        }
    }
}
