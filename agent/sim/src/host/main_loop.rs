//! The daemon's main loop: reads the port, and reports its address to the agent (P§2.3, P§3.2).

use std::rc::Rc;

use super::daemon::Host;
use super::port::Backend;
use super::{calls, server};
use crate::machine::{MILLI, Micros, SECOND, Zone, either, sleep};
use crate::oracle::Word;

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
            // It notifies every guest.
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
