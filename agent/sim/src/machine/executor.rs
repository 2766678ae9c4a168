//! Tasks on virtual clocks: the host's, which is the true one, and the guest's, which can jump and
//! may stop during a suspend. Fully deterministic.

use std::fmt::Arguments;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;

use crate::sim_prelude::*;

/// Microseconds since the start of the scenario.
pub type Micros = u64;
pub const MILLI: Micros = 1_000;
pub const SECOND: Micros = 1_000_000;

/// Number of steps at one instant above which a task counts as looping without waiting.
const BUSY: u32 = 200_000;

#[derive(Default)]
struct Clock {
    timers: RefCell<BTreeMap<(Micros, u64), Waker>>,
    ready: Arc<Mutex<VecDeque<TaskId>>>,
}

#[derive(Clone, Copy)]
struct Suspend {
    since: Micros,
    until: Micros,
    /// Whether the guest's clock continues meanwhile.
    is_counted: bool,
}

#[derive(Default)]
pub(crate) struct Sim {
    pub(crate) dice: Dice,
    now: Cell<Micros>,
    count: Cell<u64>,
    host: Clock,
    guest: Clock,
    /// The guest's clock minus the host's.
    offset: Cell<i64>,
    frozen: Cell<Option<Suspend>>,
    /// Total length of suspends.
    slept: Cell<Micros>,
    tasks: RefCell<BTreeMap<TaskId, Slot>>,
    processes: Cell<u32>,
    steps: Cell<u32>,
    current: Cell<Option<Process>>,
    is_blocked: Cell<bool>,
    /// Raised when no task blocks any longer.
    pub(crate) unblocked: Signal,
    hash: Cell<u64>,
    is_loud: bool,
    failure: RefCell<Option<String>>,
    /// Check that runs after each step.
    look: RefCell<Option<Rc<dyn Fn()>>>,
}

impl Sim {
    pub(crate) fn new(dice: Dice, is_loud: bool) -> Rc<Self> {
        let hash = Cell::new(0xcbf2_9ce4_8422_2325);
        Rc::new(Self { dice, is_loud, hash, ..Self::default() })
    }

    fn clock(&self, zone: Zone) -> &Clock {
        match zone {
            Zone::Host => &self.host,
            Zone::Guest => &self.guest,
        }
    }

    pub(crate) fn now(&self, zone: Zone) -> Micros {
        match zone {
            Zone::Host => self.now.get(),
            Zone::Guest => {
                let stopped = self.frozen.get().filter(|suspend| !suspend.is_counted);
                let now = stopped.map_or(self.now.get(), |suspend| suspend.since);
                now.saturating_add_signed(self.offset.get())
            }
        }
    }

    /// Returns the true time without suspends. Limits in the guest are measured with it. A jump of
    /// the clock only ends a wait early.
    pub(crate) fn awake(&self) -> Micros {
        let now = self.frozen.get().map_or(self.now.get(), |suspend| suspend.since);
        now - self.slept.get()
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.get().is_some()
    }

    /// Suspends the guest; its clock may continue or stop.
    pub(crate) fn freeze(&self, length: Micros, is_counted: bool) {
        if self.frozen.get().is_none() {
            self.trace("suspended", length, u64::from(is_counted));
            let since = self.now.get();
            self.frozen.set(Some(Suspend { since, until: since + length, is_counted }));
        }
    }

    fn thaw(&self) {
        let Some(Suspend { since, until, is_counted }) = self.frozen.get() else { return };
        if until > self.now.get() {
            return;
        }
        self.frozen.set(None);
        let length = self.now.get() - since;
        self.slept.set(self.slept.get() + length);
        if !is_counted {
            self.offset.set(self.offset.get() - length.cast_signed());
        }
        self.trace("resumed", length, 0);
    }

    pub(crate) fn jump(&self, length: Micros) {
        self.trace("clock jumps", length, 0);
        self.offset.set(self.offset.get() + length.cast_signed());
    }

    pub(crate) fn process(&self, zone: Zone) -> Process {
        self.processes.set(self.processes.get() + 1);
        Process { zone, number: self.processes.get() }
    }

    pub(crate) fn spawn(
        &self,
        process: Process,
        task: impl Future<Output = ()> + 'static,
    ) -> TaskId {
        let id = self.number();
        let queue = self.clock(process.zone).ready.clone();
        let (is_queued, is_missed) = Default::default();
        let waker = Arc::new(Knock { id, is_queued, is_missed, queue });
        waker.clone().wake();
        let slot = Slot { process, is_cancelled: false, waker, task: Some(Box::pin(task)) };
        self.tasks.borrow_mut().insert(id, slot);
        id
    }

    pub(crate) fn number(&self) -> u64 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    pub(crate) fn kill(&self, process: Process) {
        self.end(|slot| slot.process == process);
    }

    /// Drops a task when it would next run.
    pub(crate) fn cancel(&self, id: TaskId) {
        if let Some(slot) = self.tasks.borrow_mut().get_mut(&id) {
            slot.is_cancelled = true;
            slot.waker.clone().wake();
        }
    }

    fn end(&self, which: impl Fn(&Slot) -> bool) {
        let dead: Vec<_> = self.tasks.borrow_mut().extract_if(.., |_, slot| which(slot)).collect();
        // Dropping a task may wake or start others.
        drop(dead);
    }

    /// Wakes the task when the zone's clock shows `when`.
    pub(crate) fn wake_at(&self, zone: Zone, when: Micros, waker: &Waker) -> (Micros, u64) {
        let key = (when, self.number());
        self.clock(zone).timers.borrow_mut().insert(key, waker.clone());
        key
    }

    pub(crate) fn forget(&self, zone: Zone, key: (Micros, u64)) {
        let gone = self.clock(zone).timers.borrow_mut().remove(&key);
        drop(gone);
    }

    pub(crate) fn run(&self, end: Micros) {
        while self.instant(end, &|| false) {}
        self.now.set(self.now.get().max(end));
    }

    /// Runs everything that can run now, then advances to the next event. Returns false if that
    /// event is after the end, after a failure, or once `is_so` holds.
    fn instant(&self, end: Micros, is_so: &dyn Fn() -> bool) -> bool {
        self.steps.set(0);
        while self.failure.borrow().is_none() && !is_so() && self.step() {}
        let next = self.next().filter(|next| *next <= end && !is_so());
        let Some(next) = next.filter(|_| self.failure.borrow().is_none()) else { return false };
        self.now.set(self.now.get().max(next));
        self.thaw();
        self.fire(Zone::Host);
        if !self.is_frozen() {
            self.fire(Zone::Guest);
        }
        true
    }

    /// Blocks only the running task, until `length` has passed on the guest's clock or `is_so`
    /// holds.
    pub(crate) fn block(&self, length: Micros, is_so: &dyn Fn() -> bool) {
        let end = self.now(Zone::Guest).saturating_add(length);
        let key = self.wake_at(Zone::Guest, end, Waker::noop());
        let is_so = || is_so() || (!self.is_frozen() && self.now(Zone::Guest) >= end);
        let current = self.current.get();
        self.is_blocked.set(true);
        while self.instant(Micros::MAX, &is_so) {}
        self.is_blocked.set(false);
        self.current.set(current);
        self.forget(Zone::Guest, key);
        if self.failure.borrow().is_some() {
            // The scenario is over; end the wait.
            self.offset.set(self.offset.get().saturating_add_unsigned(length));
        }
        self.unblocked.raise();
    }

    /// Returns whether a task blocks. A second blocking task would keep the first from continuing.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    pub(crate) fn current(&self) -> Option<Process> {
        self.current.get()
    }

    /// Returns the true time of the next event.
    fn next(&self) -> Option<Micros> {
        let first = |zone| self.clock(zone).timers.borrow().keys().next().map(|(when, _)| *when);
        let guest = match self.frozen.get() {
            Some(suspend) => Some(suspend.until),
            None => first(Zone::Guest).map(|at| at.saturating_add_signed(-self.offset.get())),
        };
        [first(Zone::Host), guest].into_iter().flatten().min()
    }

    fn fire(&self, zone: Zone) {
        let now = self.now(zone);
        loop {
            let mut timers = self.clock(zone).timers.borrow_mut();
            match timers.first_entry() {
                Some(first) if first.key().0 <= now => first.remove().wake(),
                Some(_) | None => return,
            }
        }
    }

    /// Runs one ready task; returns false if there is none.
    fn step(&self) -> bool {
        let next = |zone| self.clock(zone).ready.lock().expect("one thread").pop_front();
        let guest = || if self.is_frozen() { None } else { next(Zone::Guest) };
        let Some(id) = next(Zone::Host).or_else(guest) else { return false };
        let Some((mut task, waker, process)) = self.begin(id) else { return true };
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > BUSY {
            self.fail("a loop that waits for nothing".into());
            return false;
        }
        let waker_of = Waker::from(waker);
        let before = self.current.replace(Some(process));
        let is_cancelled = self.tasks.borrow().get(&id).is_some_and(|slot| slot.is_cancelled);
        let is_over =
            is_cancelled || task.as_mut().poll(&mut Context::from_waker(&waker_of)).is_ready();
        self.current.set(before);
        let mut tasks = self.tasks.borrow_mut();
        match tasks.get_mut(&id) {
            Some(slot) if !is_over => {
                slot.task = Some(task);
                if slot.waker.is_missed.swap(false, Ordering::Relaxed) {
                    slot.waker.clone().wake();
                }
                drop(tasks);
            }
            _ => {
                let slot = tasks.remove(&id);
                drop(tasks);
                drop((slot, task));
            }
        }
        let look = self.look.borrow().clone();
        look.inspect(|look| look());
        true
    }

    fn begin(&self, id: TaskId) -> Option<(Task, Arc<Knock>, Process)> {
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.get_mut(&id)?;
        slot.waker.is_queued.store(false, Ordering::Relaxed);
        slot.waker.is_missed.store(slot.task.is_none(), Ordering::Relaxed);
        Some((slot.task.take()?, slot.waker.clone(), slot.process))
    }

    pub(crate) fn trace(&self, what: &'static str, one: u64, other: u64) {
        let mut hash = self.hash.get();
        let words = [self.now.get(), one, other];
        let bytes = what.bytes().chain(words.into_iter().flat_map(u64::to_le_bytes));
        for byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.hash.set(hash);
        if self.is_loud {
            let time = self.now.get();
            eprintln!("{:6}.{:06} {what} {one} {other}", time / SECOND, time % SECOND);
        }
    }

    /// Sets the check that runs after each step.
    pub(crate) fn watch(&self, look: impl Fn() + 'static) {
        self.look.replace(Some(Rc::new(look)));
    }

    pub(crate) fn is_loud(&self) -> bool {
        self.is_loud
    }

    pub(crate) fn say(&self, fact: Arguments<'_>) {
        if self.is_loud {
            let time = self.now.get();
            eprintln!("{:6}.{:06}   {fact}", time / SECOND, time % SECOND);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// Ends the scenario because a rule is violated. Only the first message is kept.
    pub(crate) fn fail(&self, why: String) {
        let time = self.now.get();
        let said = format!("at {}.{:06} s: {why}", time / SECOND, time % SECOND);
        self.failure.borrow_mut().get_or_insert(said);
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Drops everything that still runs, because its parts refer to each other.
    pub(crate) fn clear(&self) {
        self.end(|_| true);
        self.look.replace(None);
        let timers = [self.host.timers.take(), self.guest.timers.take()];
        drop(timers);
    }
}

/// The machine whose clock and suspends apply to a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Zone {
    #[default]
    Host,
    Guest,
}

/// Tasks that are killed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) zone: Zone,
    pub(crate) number: u32,
}

/// A task's identity, to cancel it.
pub(crate) type TaskId = u64;

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    process: Process,
    is_cancelled: bool,
    waker: Arc<Knock>,
    /// The task; `None` while it runs.
    task: Option<Task>,
}

/// Queues its task when woken.
struct Knock {
    id: TaskId,
    is_queued: AtomicBool,
    /// Whether the task was woken by other tasks while it blocked.
    is_missed: AtomicBool,
    queue: Arc<Mutex<VecDeque<TaskId>>>,
}

impl Wake for Knock {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.queue.lock().expect("one thread").push_back(self.id);
        }
    }
}
