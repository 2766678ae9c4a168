//! 1,000 agents and one host on a virtual clock: the status machine that ships, QEMU's ring and event throttle, and a
//! daemon that acts on what it reads as LXD does (P§2.3, P§3.2). The figures are exact: one seed gives one run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use mote_core::host_address::HostAddress;
use mote_core::status::{Action, Intervals, State, Status};
use mote_core::time::Uptime;
use mote_qemu::{LOOK, Ring, Sent, Throttle};

const AGENTS: usize = 1_000;
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLI;
/// When the host's failure begins; all agents have been CONNECTED for at least 10 s.
const BEGIN: u64 = 20 * SECOND;
const END: u64 = 120 * SECOND;
/// LXD takes up its instances one after another when it starts.
const TAKE_UP: u64 = MILLI;
const CALL: u64 = 2 * MILLI;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Settle(usize),
    /// The agent's deadline; superseded if the count has moved on.
    Wake(usize, u32),
    /// QEMU sends the event that it held back.
    Release(usize),
    /// The daemon has heard nothing for [`LOOK`] seconds; superseded likewise.
    Look(usize, u32),
    /// The end of a call to the host, by its attempt and port.
    Answer(usize, u32, u32),
    TakeUp(usize),
    Down,
    Failing(bool),
}

#[derive(Default)]
struct Vm {
    status: Option<Status>,
    ring: Ring,
    port: Throttle,
    wakes: u32,
    looks: u32,
    seen: Seen,
}

/// What the daemon that runs knows of a VM; it acts on the first STARTED alone.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    Nothing,
    Vm,
    Agent,
}

#[derive(Default)]
struct Fleet {
    now: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    vms: Vec<Vm>,
    /// Each daemon listens on a port of its own.
    daemon: u32,
    is_failing: bool,
    reads: u64,
    failed: u64,
}

fn uptime(now: u64) -> Uptime {
    Uptime(Duration::from_micros(now))
}

impl Fleet {
    fn at(&mut self, when: u64, event: Event) {
        self.count += 1;
        self.agenda.push(Reverse((when, self.count, event)));
    }

    /// Runs until `end`, or until all agents are CONNECTED to a daemon with this number; returns the time.
    fn run(&mut self, end: u64, until: Option<u32>) -> u64 {
        let is_there = |vm: &Vm, port| {
            let status = vm.status.as_ref().filter(|status| status.state() == State::Connected);
            status.and_then(Status::address).is_some_and(|address| address.port == port)
        };
        while let Some(Reverse((when, _, event))) = self.agenda.pop() {
            if when >= end {
                self.at(when, event);
                break;
            }
            self.now = when;
            self.happens(event);
            let is_answer = matches!(event, Event::Answer(..));
            if is_answer && until.is_some_and(|port| self.vms.iter().all(|vm| is_there(vm, port))) {
                return self.now;
            }
        }
        end
    }

    fn address(&self) -> HostAddress {
        HostAddress { cid: 2, port: self.daemon }
    }

    fn happens(&mut self, event: Event) {
        let (now, address) = (uptime(self.now), self.address());
        match event {
            Event::Settle(vm) => {
                let mut status = Status::new(now, Intervals::default());
                let attempt = status.put_started(now, address);
                assert!(status.verified(now, attempt, true));
                let it = &mut self.vms[vm];
                it.status = Some(status);
                self.take_up(vm, Seen::Agent);
                self.pump(vm);
            }
            Event::Wake(vm, count) if self.vms[vm].wakes == count => self.pump(vm),
            Event::Look(vm, count) if self.vms[vm].looks == count => self.look(vm),
            Event::Wake(..) | Event::Look(..) => {}
            Event::Release(vm) => {
                self.vms[vm].port.over(self.now);
                self.look(vm);
            }
            Event::Answer(vm, attempt, port) => {
                let ok =
                    !self.is_failing && port == self.daemon && self.vms[vm].seen != Seen::Nothing;
                self.failed += u64::from(!ok);
                if let Some(status) = &mut self.vms[vm].status {
                    status.verified(now, attempt, ok);
                }
                self.pump(vm);
            }
            Event::TakeUp(vm) => self.take_up(vm, Seen::Vm),
            Event::Down => {
                self.daemon += 1;
                for vm in &mut self.vms {
                    (vm.seen, vm.looks) = (Seen::Nothing, vm.looks + 1);
                }
            }
            Event::Failing(is_failing) => {
                self.is_failing = is_failing;
                // Those with a call under way notice; so does a program's call each minute.
                for vm in (0..AGENTS).filter(|_| is_failing) {
                    if let Some(status) = &mut self.vms[vm].status {
                        status.host_lost(now);
                    }
                    self.pump(vm);
                }
            }
        }
    }

    fn take_up(&mut self, vm: usize, seen: Seen) {
        self.vms[vm].seen = seen;
        self.look(vm);
    }

    /// The daemon reads the ring.
    fn look(&mut self, vm: usize) {
        let address = self.address();
        let it = &mut self.vms[vm];
        if it.seen == Seen::Nothing {
            return;
        }
        self.reads += 1;
        it.looks += 1;
        let (looks, line) = (it.looks, it.ring.read());
        match line.as_deref() {
            Some(b"STOPPED") => it.seen = Seen::Vm,
            Some(b"STARTED") if it.seen == Seen::Vm => {
                it.seen = Seen::Agent;
                // The handler of the PUT makes this call.
                if let Some(status) = &mut it.status {
                    let attempt = status.put_started(uptime(self.now), address);
                    self.at(self.now + CALL, Event::Answer(vm, attempt, address.port));
                }
                self.pump(vm);
            }
            _ => {}
        }
        self.at(self.now + LOOK * SECOND, Event::Look(vm, looks));
    }

    /// Carries out what the agent decides.
    fn pump(&mut self, vm: usize) {
        let now = uptime(self.now);
        while let Some(action) = self.vms[vm].status.as_mut().and_then(|status| status.poll(now)) {
            match action {
                Action::Write { line, visible, .. } => {
                    let it = &mut self.vms[vm];
                    it.ring.write(line);
                    match visible.then(|| it.port.event(self.now)) {
                        Some(Sent::Now) => self.look(vm),
                        Some(Sent::At(end)) => self.at(end, Event::Release(vm)),
                        Some(Sent::Never) | None => {}
                    }
                }
                Action::Verify { address, attempt, .. } => {
                    self.at(self.now + CALL, Event::Answer(vm, attempt, address.port));
                }
                Action::Refused(_) | Action::HostAddress(_) | Action::Changed(_) => {}
            }
        }
        let it = &mut self.vms[vm];
        it.wakes += 1;
        let (wakes, deadline) = (it.wakes, it.status.as_ref().and_then(Status::deadline));
        if let Some(deadline) = deadline {
            let then = deadline.0.as_nanos().div_ceil(1_000).try_into().expect("a short run");
            self.at(then, Event::Wake(vm, wakes));
        }
    }
}

/// Agents that were CONNECTED at moments spread over 10 s.
fn settled() -> Fleet {
    let mut fleet = Fleet { daemon: 1, ..Fleet::default() };
    for vm in 0..AGENTS {
        fleet.vms.push(Vm::default());
        fleet.at(vm as u64 * 7919 * MILLI % (10 * SECOND), Event::Settle(vm));
    }
    fleet.run(BEGIN, None);
    fleet
}

#[test]
fn a_quiet_fleet_costs_the_host_little() {
    let mut fleet = settled();
    let before = fleet.reads;
    fleet.run(END, None);
    let (reads, seconds) = (fleet.reads - before, (END - BEGIN) / SECOND);
    // The host's own look every 10 s is 100 a second; an announcement every 30 s moves it and adds 30.
    assert!((100 * seconds..=140 * seconds).contains(&reads), "{reads} in {seconds} s");
    assert_eq!(fleet.failed, 0);
}

#[test]
fn all_are_back_as_fast_as_a_restarted_host_takes_them_up() {
    for down in [2, 30] {
        let mut fleet = settled();
        fleet.at(BEGIN, Event::Down);
        let up = BEGIN + down * SECOND;
        for vm in 0..AGENTS {
            fleet.at(up + (vm as u64 + 1) * TAKE_UP, Event::TakeUp(vm));
        }
        let back = fleet.run(END, Some(2)) - up;
        let all_taken_up = AGENTS as u64 * TAKE_UP;
        assert!(back <= all_taken_up + 100 * MILLI, "down for {down} s: {back} us");
    }
}

#[test]
fn a_host_that_fails_every_call_is_asked_ever_less() {
    let mut fleet = settled();
    fleet.at(BEGIN, Event::Failing(true));
    fleet.at(BEGIN + 30 * SECOND, Event::Failing(false));
    fleet.run(BEGIN + 30 * SECOND, None);
    // Five by the back-off of 1 to 30 s, and those that follow a PUT.
    assert!(fleet.failed <= AGENTS as u64 * 8, "{}", fleet.failed);
    let back = fleet.run(END, Some(1));
    assert!(back < END, "not all are back");
}
