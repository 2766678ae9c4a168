//! Drives the status machine, as `status/pump.rs` does: bytes from the port in, its actions out.

use std::rc::Rc;

use mote_core::host_address::HostAddress;
use mote_core::status::{Action, State};

use super::agent::{Agent, micros};
use super::host_call::{Failed, Link};
use crate::host::port::Port;
use crate::machine::executor::{MILLI, Micros, Zone};
use crate::machine::wait::{either, give_way, sleep, until};

/// Pause between two looks for a missing port.
const LOOK: Micros = 100 * MILLI;

/// Runs until STOPPED is written.
pub(crate) async fn run(agent: Rc<Agent>) {
    let mut pump = Pump { agent, port: None, was_missing: false };
    while pump.step().await {}
}

struct Pump {
    agent: Rc<Agent>,
    port: Option<Port>,
    was_missing: bool,
}

impl Pump {
    async fn step(&mut self) -> bool {
        if self.port.is_none() {
            self.open();
        }
        let seen = self.agent.status_changed.seen();
        while let Some(action) = self.next_action() {
            self.act(action);
        }
        self.agent.watch();
        let is_last = {
            let status = self.agent.status.borrow();
            status.state() == State::Stopped && status.deadline().is_none()
        };
        if !is_last {
            self.wait(seen).await;
        }
        !is_last
    }

    fn next_action(&self) -> Option<Action> {
        self.agent.status.borrow_mut().poll(self.agent.now())
    }

    async fn wait(&mut self, seen: u64) {
        let sim = self.agent.sim().clone();
        let deadline = match &self.port {
            Some(_) => Some(self.agent.status.borrow().wake(self.agent.now())),
            None => self.agent.status.borrow().deadline(),
        };
        let due = async {
            until(&sim, Zone::Guest, deadline.map_or(Micros::MAX, micros)).await;
            None
        };
        let poked = async {
            self.agent.status_changed.after(seen).await;
            None
        };
        let read = async {
            match &self.port {
                Some(port) => Some(port.read().await),
                None => {
                    sleep(&sim, Zone::Guest, LOOK).await;
                    None
                }
            }
        };
        match either(either(read, due), poked).await {
            None => {}
            Some(Some(bytes)) => {
                self.agent.status.borrow_mut().received(self.agent.now(), &bytes);
                give_way().await;
            }
            Some(None) => self.lost(),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Write { line, visible, kick } => self.write(line, visible, kick),
            Action::Verify { address, fingerprint, attempt } => {
                let agent = self.agent.clone();
                self.agent.spawn(async move {
                    verify(&agent, address, fingerprint, attempt).await;
                });
            }
            Action::Refused(_) | Action::HostAddress(_) | Action::Changed(_) => {}
        }
    }

    fn open(&mut self) {
        self.port = Port::open(&self.agent.around.qemu);
        if self.port.is_none() {
            self.was_missing = true;
        } else if std::mem::take(&mut self.was_missing) {
            self.agent.status.borrow_mut().port_appeared(self.agent.now());
        }
    }

    fn write(&mut self, line: &'static [u8], is_visible: bool, kick: bool) {
        let now = self.agent.now();
        let Some(port) = self.port.take() else {
            return self.agent.status.borrow_mut().write_failed(now);
        };
        if !is_visible {
            if port.write(line).is_none() {
                self.agent.status.borrow_mut().write_failed(now);
            }
            self.port = Some(port);
            return;
        }
        if let Some(bytes) = port.left() {
            self.agent.status.borrow_mut().received(now, &bytes);
        }
        let written = port.write(line);
        drop(port);
        match written {
            Some(()) if kick => self.agent.around.qemu.kick(),
            Some(()) => {}
            None => self.agent.status.borrow_mut().write_failed(now),
        }
        if self.agent.state() != State::Stopped {
            self.open();
        }
    }

    fn lost(&mut self) {
        self.port = None;
        self.was_missing = true;
    }
}

/// Calls the host to verify its address. The link becomes the known one only if that counts.
async fn verify(agent: &Rc<Agent>, address: HostAddress, print: Option<[u8; 32]>, attempt: u32) {
    let result = try_verify(agent, address, print).await;
    let now = agent.now();
    let counts = agent.status(|status| status.verified(now, attempt, result.is_ok()));
    if let (true, Ok((link, host_state))) = (counts, result) {
        *agent.link.borrow_mut() = Some(link);
        agent.replay_ready(host_state.as_deref()).await;
    }
}

async fn try_verify(
    agent: &Rc<Agent>,
    address: HostAddress,
    print: Option<[u8; 32]>,
) -> Result<(Rc<Link>, Option<String>), Failed> {
    let known = agent.link.borrow().as_ref().map(|link| link.pin);
    let pin = print.map(|print| u64::from(print[0])).or(known);
    let link = agent.link_to(address, pin.ok_or(Failed("no certificate is known"))?);
    let host_state = agent.verify(&link).await?;
    Ok((link, host_state))
}
