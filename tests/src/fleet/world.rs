//! The simulation: agents, QEMU and time. Each event is one thing that happens; what follows from it
//! goes on the agenda. The daemon's part is in `hosting.rs`.

use std::time::Duration;

use mote_core::status::{Action, Intervals, Status};
use mote_qemu::Sent;

use super::call::{Call, Kind};
use super::clock::{Agenda, Dice, Micros, SECOND, micros, uptime};
use super::cpu::Cpu;
use super::daemon::{Daemon, Health};
use super::event::{Event, Work};
use super::load::Load;
use super::model::{Channel, PATIENCE, Plan, Start, Trouble};
use super::vm::{Knows, Vm};

/// All there is.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) now: Micros,
    pub(super) agenda: Agenda<Event>,
    pub(super) cpu: Cpu<Work>,
    pub(super) daemon: Daemon,
    pub(super) vms: Vec<Vm>,
    pub(super) calls: Vec<Call>,
    pub(super) load: Load,
    connected: u32,
    dice: Dice,
}

/// Runs a simulation to its end; returns its measurements.
#[must_use]
pub fn run(plan: &Plan) -> Load {
    let mut world = World::new(plan);
    world.prepare();
    while let Some((now, event)) = world.agenda.next(Plan::BEGIN + plan.watch) {
        world.now = now;
        world.happens(event);
        world.work();
    }
    world.load.slice(Plan::BEGIN + plan.watch);
    world.load
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            now: 0,
            agenda: Agenda::default(),
            cpu: Cpu::new(plan.model.cores),
            daemon: Daemon::default(),
            vms: (0..plan.agents).map(|_| Vm::new()).collect(),
            calls: Vec::new(),
            load: Load::default(),
            connected: 0,
            dice: Dice(plan.seed),
        }
    }

    fn prepare(&mut self) {
        for vm in 0..self.vms.len() {
            let (event, spread) = match self.plan.start {
                Start::Boot(spread) => (Event::Boot(vm), spread),
                Start::Settled(spread) => (Event::Settle(vm), spread),
            };
            let when = self.dice.below(spread);
            self.agenda.at(when, event);
            let asks = when + self.dice.below(self.plan.asks);
            self.agenda.at(asks, Event::Asks(vm));
        }
        match self.plan.trouble {
            Trouble::None => {}
            Trouble::Restart(down) => {
                self.agenda.at(Plan::BEGIN, Event::Down);
                self.agenda.at(Plan::BEGIN + down, Event::Up);
            }
            Trouble::Failing(time) => {
                self.agenda.at(Plan::BEGIN, Event::Fails);
                self.agenda.at(Plan::BEGIN + time, Event::Works);
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Boot(vm) => self.boot(vm),
            Event::Settle(vm) => self.settle(vm),
            Event::Wake(vm, wake) if self.vms[vm].wake == wake => self.pump(vm),
            Event::Wake(..) => {}
            Event::Written { vm, line, kick } => self.written(vm, line, kick),
            Event::Throttle(vm, port) => {
                self.vms[vm].ports[port].over(self.now);
                self.notice(vm);
            }
            Event::Poll(vm, poll) if self.vms[vm].seen.poll == poll => self.look(vm),
            Event::Poll(..) => {}
            Event::Done(work) => {
                self.cpu.done();
                self.done(work);
            }
            Event::Turn(call) => self.turn(call),
            Event::Late(call) => self.end(call, false),
            Event::Asks(vm) => {
                let pause = self.plan.asks / 2 + self.dice.below(self.plan.asks);
                self.agenda.at(self.now + pause, Event::Asks(vm));
                let address = self.vms[vm].status.as_ref().and_then(Status::address);
                if let Some(address) = address {
                    self.begin(vm, Kind::Ask { address });
                }
            }
            Event::Down => self.down(),
            Event::Up => self.up(),
            Event::Fails => self.daemon.health = Health::Failing,
            Event::Works => self.daemon.health = Health::Well,
        }
    }

    /// Begins waiting work on free cores.
    fn work(&mut self) {
        loop {
            let (calls, daemon) = (&self.calls, &self.daemon);
            let wanted = |work: &Work| match work {
                Work::TakeUp { daemon: of, .. }
                | Work::Read { daemon: of, .. }
                | Work::Hear { daemon: of, .. } => daemon.is_up() && daemon.number == *of,
                Work::Step(call) => !calls[*call].is_over,
            };
            let Some((work, cost)) = self.cpu.begin(wanted) else { return };
            self.load.slice(self.now).cpu += cost;
            self.agenda.at(self.now + cost, Event::Done(work));
        }
    }

    /// The agent's status machine as the shell starts it.
    fn agent(&mut self) -> Status {
        // Jitter only shortens intervals.
        let less = self.dice.below(self.plan.jitter.max(1));
        let jittered = |interval: Duration| {
            interval - interval * u32::try_from(less).unwrap_or_default() / 256
        };
        let Intervals { connect, started, connected } = self.plan.intervals;
        let (started, connected) = (jittered(started), jittered(connected));
        let mut status = Status::new(uptime(self.now), Intervals { connect, started, connected });
        status.trust_known(true);
        status
    }

    fn boot(&mut self, vm: usize) {
        let mut status = self.agent();
        // The address in `agent.conf`.
        status.know(uptime(self.now), self.daemon.address());
        self.vms[vm].status = Some(status);
        self.take_up(vm);
        self.pump(vm);
    }

    fn settle(&mut self, vm: usize) {
        let (mut status, now) = (self.agent(), uptime(self.now));
        let address = self.daemon.address();
        match self.plan.channel {
            Channel::Ring => {
                let attempt = status.put_started(now, address);
                status.verified(now, attempt, true);
            }
            Channel::Line => {
                status.received(now, self.daemon.line().as_bytes());
                while let Some(action) = status.poll(now) {
                    if let Action::Verify { attempt, .. } = action {
                        status.verified(now, attempt, true);
                    }
                }
            }
        }
        let it = &mut self.vms[vm];
        (it.status, it.ticket) = (Some(status), Some(address));
        self.take_up(vm);
        self.vms[vm].seen.knows = Knows::Agent;
        self.pump(vm);
    }

    /// Passes an input to the agent's status machine and carries out its actions.
    pub(super) fn tell<T>(&mut self, vm: usize, tell: impl FnOnce(&mut Status) -> T) -> Option<T> {
        let result = tell(self.vms[vm].status.as_mut()?);
        self.pump(vm);
        Some(result)
    }

    /// Carries out the actions of the agent's status machine and schedules its deadline.
    fn pump(&mut self, vm: usize) {
        let now = uptime(self.now);
        while let Some(action) = self.vms[vm].status.as_mut().and_then(|status| status.poll(now)) {
            match action {
                Action::Write { line, visible: true, kick } => {
                    self.event(vm, STATUS);
                    let when = self.now + self.plan.model.write;
                    self.agenda.at(when, Event::Written { vm, line, kick });
                }
                Action::Write { line, visible: false, .. } => self.wrote(vm, line),
                Action::Verify { address, attempt, .. } => {
                    self.begin(vm, Kind::Verify { attempt, address, answers: None });
                }
                Action::Refused(_) | Action::HostAddress(_) | Action::Changed(_) => {}
            }
        }
        let it = &mut self.vms[vm];
        it.wake += 1;
        if let Some(deadline) = it.status.as_ref().and_then(Status::deadline) {
            self.agenda.at(micros(deadline), Event::Wake(vm, it.wake));
        }
        self.count(vm);
    }

    /// Updates the number of CONNECTED agents.
    pub(super) fn count(&mut self, vm: usize) {
        let host = self.daemon.is_up().then(|| self.daemon.address());
        let it = &mut self.vms[vm];
        let good = it.is_connected_to(host);
        if std::mem::replace(&mut it.good, good) != good {
            self.connected = if good { self.connected + 1 } else { self.connected - 1 };
            self.load.connected(self.now, self.connected);
        }
    }

    fn written(&mut self, vm: usize, line: &'static [u8], kick: bool) {
        self.wrote(vm, line);
        self.event(vm, STATUS);
        if kick {
            self.event(vm, LEGACY);
            self.event(vm, LEGACY);
        }
    }

    fn wrote(&mut self, vm: usize, line: &'static [u8]) {
        match self.plan.channel {
            Channel::Ring => self.vms[vm].ring.write(line),
            Channel::Line if self.vms[vm].seen.knows != Knows::Nothing => {
                let work = Work::Hear { vm, daemon: self.daemon.number, line };
                self.cpu.queue(work, self.plan.model.read);
            }
            // The daemon has not opened the port.
            Channel::Line => {}
        }
    }

    /// A port is opened or closed.
    fn event(&mut self, vm: usize, port: usize) {
        if self.plan.channel == Channel::Ring {
            match self.vms[vm].ports[port].event(self.now) {
                Sent::Now => self.notice(vm),
                Sent::At(end) => self.agenda.at(end, Event::Throttle(vm, port)),
                Sent::Never => {}
            }
        }
    }

    /// A call begins.
    pub(super) fn begin(&mut self, vm: usize, kind: Kind) {
        let has_ticket = match kind {
            Kind::Advertise => false,
            Kind::Verify { address, .. } | Kind::Ask { address } => {
                self.vms[vm].ticket == Some(address)
            }
        };
        let cost = self.plan.model.handshake(has_ticket);
        let call = self.calls.len();
        self.calls.push(Call { kind, vm, step: 0, cost, is_over: false });
        self.load.call_began(self.now);
        // Jitter delays the verifications that an agent starts itself.
        let later = match kind {
            Kind::Verify { answers: None, .. } => self.dice.below(SECOND * self.plan.jitter / 256),
            Kind::Advertise | Kind::Verify { .. } | Kind::Ask { .. } => 0,
        };
        let when = self.now + later + self.plan.model.latency;
        self.agenda.at(when, Event::Turn(call));
        self.agenda.at(self.now + PATIENCE, Event::Late(call));
    }
}

/// Index of the status port, which has a ring.
const STATUS: usize = 0;
/// Index of the legacy port, which only causes events.
const LEGACY: usize = 1;
