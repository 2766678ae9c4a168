//! What the daemon does: takes up its VMs, hears of them, tells them where it is, answers their calls. As
//! LXD does it (P§2.3, P§3.2).

use mote_core::status::Status;

use super::call::Kind;
use super::clock::uptime;
use super::daemon::Health;
use super::event::{Event, Work};
use super::model::{Channel, POLL};
use super::vm::{Knows, Seen};
use super::world::World;

impl World<'_> {
    pub(super) fn down(&mut self) {
        self.daemon.health = Health::Away;
        for vm in 0..self.vms.len() {
            let poll = self.vms[vm].seen.poll + 1;
            self.vms[vm].seen = Seen { knows: Knows::Nothing, poll };
            self.count(vm);
        }
        // Its connections break.
        for call in 0..self.calls.len() {
            self.end(call, false);
        }
    }

    pub(super) fn up(&mut self) {
        self.daemon.number += 1;
        self.daemon.health = Health::Well;
        self.take_up_next(0);
    }

    /// One VM after the other.
    fn take_up_next(&mut self, vm: usize) {
        if vm < self.vms.len() {
            let work = Work::TakeUp { vm, daemon: self.daemon.number };
            self.cpu.queue(work, self.plan.model.register);
        }
    }

    /// The daemon has a connection to the VM's QEMU, or to its port.
    pub(super) fn take_up(&mut self, vm: usize) {
        self.vms[vm].seen.knows = Knows::Vm;
        if self.plan.channel == Channel::Ring {
            self.look(vm);
        }
    }

    /// QEMU has sent an event.
    pub(super) fn notice(&mut self, vm: usize) {
        if self.vms[vm].seen.knows != Knows::Nothing {
            self.load.slice(self.now).events += 1;
            self.look(vm);
        }
    }

    /// Reads the ring soon, and again if nothing is heard for long.
    pub(super) fn look(&mut self, vm: usize) {
        let work = Work::Read { vm, daemon: self.daemon.number };
        self.cpu.queue(work, self.plan.model.read);
        let seen = &mut self.vms[vm].seen;
        seen.poll += 1;
        self.agenda.at(self.now + POLL, Event::Poll(vm, seen.poll));
    }

    /// What follows from work that was done.
    pub(super) fn done(&mut self, work: Work) {
        match work {
            Work::Step(call) => {
                if !self.calls[call].is_over {
                    self.calls[call].step += 1;
                    self.agenda.at(self.now + self.plan.model.latency, Event::Turn(call));
                }
            }
            Work::TakeUp { daemon, .. } | Work::Read { daemon, .. } | Work::Hear { daemon, .. }
                if !self.daemon.is_up() || daemon != self.daemon.number => {}
            Work::TakeUp { vm, .. } => {
                self.take_up(vm);
                if self.plan.channel == Channel::Line {
                    self.say_connect(vm);
                }
                self.take_up_next(vm + 1);
            }
            Work::Read { vm, .. } => {
                self.load.slice(self.now).reads += 1;
                if let Some(line) = self.vms[vm].ring.read() {
                    self.heard(vm, &line);
                }
            }
            Work::Hear { vm, line, .. } => {
                self.load.slice(self.now).reads += 1;
                // Several lines are one word said twice.
                let last = line.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
                self.heard(vm, last.unwrap_or_default());
            }
        }
    }

    fn heard(&mut self, vm: usize, line: &[u8]) {
        let seen = &mut self.vms[vm].seen;
        match (line, self.plan.channel) {
            // Once; nobody tries again if it fails (P§2.3).
            (b"STARTED", Channel::Ring) if seen.knows != Knows::Agent => {
                seen.knows = Knows::Agent;
                self.begin(vm, Kind::Advertise);
            }
            (b"STARTED", Channel::Line) => self.say_connect(vm),
            (b"STOPPED", _) => seen.knows = Knows::Vm,
            // CONNECTED says nothing to it.
            _ => {}
        }
    }

    fn say_connect(&mut self, vm: usize) {
        let (line, now) = (self.daemon.line(), uptime(self.now));
        self.tell(vm, |status| status.received(now, line.as_bytes()));
    }

    /// The other side of a call has its turn.
    pub(super) fn turn(&mut self, call: usize) {
        let it = self.calls[call];
        if it.is_over {
            return;
        }
        let is_there = match it.kind {
            Kind::Advertise => true,
            Kind::Verify { address, .. } | Kind::Ask { address } => {
                self.daemon.is_up() && address == self.daemon.address()
            }
        };
        if !is_there {
            // Refused: costs the host nothing.
            return self.end(call, false);
        }
        if it.goes_on() {
            return self.cpu.queue(Work::Step(call), it.cost);
        }
        match it.kind {
            Kind::Advertise => {
                let (address, now) = (self.daemon.address(), uptime(self.now));
                let attempt = self.tell(it.vm, |status| status.put_started(now, address));
                if let Some(attempt) = attempt {
                    let answers = Some(call);
                    self.begin(it.vm, Kind::Verify { attempt, address, answers });
                }
            }
            Kind::Verify { .. } | Kind::Ask { .. } => {
                self.end(call, self.daemon.health == Health::Well)
            }
        }
    }

    /// A call has been answered, or has failed.
    pub(super) fn end(&mut self, call: usize, ok: bool) {
        if std::mem::replace(&mut self.calls[call].is_over, true) {
            return;
        }
        let (it, now) = (self.calls[call], uptime(self.now));
        self.load.call_ended();
        self.load.slice(self.now).failed += u64::from(!ok);
        match it.kind {
            Kind::Advertise => {}
            Kind::Verify { attempt, address, answers } => {
                if ok {
                    self.vms[it.vm].ticket = Some(address);
                }
                self.tell(it.vm, |status| status.verified(now, attempt, ok));
                if let Some(answered) = answers {
                    self.end(answered, ok);
                }
            }
            Kind::Ask { address } => {
                if ok {
                    self.vms[it.vm].ticket = Some(address);
                }
                let told = |status: &mut Status| {
                    if ok { _ = status.call_ok(now) } else { status.host_lost(now) }
                };
                self.tell(it.vm, told);
            }
        }
    }
}
