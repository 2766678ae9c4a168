//! Limits on guest clients: connections and permits. The core's `http/admission.rs` decides which
//! client is closed in favour of another.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use async_executor::Task;
use mote_core::http::admission::{Activity, Bounds, Connected, GRACE, first_to_go};
use mote_core::time::Uptime;
use rustix::process::{Resource, getrlimit};

use crate::runtime::clock::{now, within};
use crate::runtime::wake::Signal;

/// Limits that follow from the number of descriptors we may have.
pub(crate) fn bounds() -> Bounds {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Bounds::of(usize::try_from(descriptors).unwrap_or(usize::MAX))
}

/// The connected guest clients, and their permits.
pub(crate) struct Guests {
    most: usize,
    clients: RefCell<Vec<Rc<Client>>>,
    /// Permits of requests that need more memory than each connection has.
    large: Rc<Permits>,
    /// Permits of requests that are forwarded to the host.
    answers: Rc<Permits>,
    /// Permits of forwarded requests that may take minutes.
    long: Rc<Permits>,
}

/// A FIFO semaphore: while a task waits, no permit is free.
struct Permits {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Weak<Grant>>>,
}

/// A permit, released when dropped.
struct Permit(Rc<Permits>);

/// A waiter's slot in the queue, set once it has a permit.
#[derive(Default)]
struct Grant {
    granted: Cell<bool>,
    signal: Signal,
}

/// A waiting task. If dropped after a permit was granted, that goes to the next one.
struct Waiter {
    permits: Rc<Permits>,
    grant: Rc<Grant>,
}

/// Kinds of permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For more memory than each connection has.
    Large,
    /// To forward a request to the host.
    Answer,
    /// To forward a request that may take minutes.
    Long,
}

/// A connected client.
struct Client {
    connected: Cell<Connected>,
    holds: Cell<Option<Kind>>,
    task: Cell<Option<Task<()>>>,
}

/// A client's registration, removed when dropped.
pub(crate) struct Entry {
    guests: Rc<Guests>,
    client: Rc<Client>,
    permit: Cell<Option<Permit>>,
}

impl Guests {
    /// No clients, and the permits that [`bounds`] allows.
    pub(crate) fn new() -> Self {
        let Bounds { connections, large, answers, long, listeners: _ } = bounds();
        Self {
            most: connections,
            clients: RefCell::default(),
            large: Permits::new(large),
            answers: Permits::new(answers),
            long: Permits::new(long),
        }
    }

    /// Makes room for one more connection. Waits only while all clients are being served.
    pub(crate) async fn make_room(&self) {
        while self.clients.borrow().len() >= self.most && !self.close_one() {
            crate::runtime::clock::sleep(GRACE).await;
        }
    }

    /// Closes the first client that can be closed; false if there is none.
    pub(crate) fn close_one(&self) -> bool {
        self.displace(None).is_ok()
    }

    /// Adds a client, served by the task that `serve` starts with its entry.
    pub(crate) fn admit(self: &Rc<Self>, serve: impl FnOnce(Entry) -> Task<()>) {
        let connected = Connected { activity: Activity::Silent, since: now() };
        let client = Rc::new(Client {
            connected: Cell::new(connected),
            holds: Cell::default(),
            task: Cell::default(),
        });
        self.clients.borrow_mut().push(client.clone());
        let entry = Entry { guests: self.clone(), client: client.clone(), permit: Cell::default() };
        client.task.set(Some(serve(entry)));
    }

    fn permits(&self, kind: Kind) -> &Rc<Permits> {
        match kind {
            Kind::Large => &self.large,
            Kind::Answer => &self.answers,
            Kind::Long => &self.long,
        }
    }

    /// Closes the first client that can be closed: of those with a permit of kind `held`, or of all.
    ///
    /// # Errors
    /// How long to wait before the next attempt.
    fn displace(&self, held: Option<Kind>) -> Result<(), Duration> {
        let now = now();
        let mut clients = self.clients.borrow_mut();
        let among = |client: &Client| held.is_none() || client.holds.get() == held;
        let all = clients.iter().enumerate().filter(|(_, client)| among(client));
        let mut all = all.map(|(index, client)| (index, client.connected.get()));
        // `None`: all are being served, and one may be idle soon.
        let (index, first) = first_to_go(&mut all, now).ok_or(GRACE)?;
        match held {
            // Closed without grace: a connection, or a request that is not complete yet.
            None | Some(Kind::Large) => {}
            Some(Kind::Answer | Kind::Long) if first.is_past_grace(now) => {}
            Some(Kind::Answer | Kind::Long) => return Err(first.since + GRACE - now),
        }
        // Its descriptor and permit are released when the executor next runs its task.
        drop(clients.swap_remove(index).task.take());
        Ok(())
    }

    /// Waits for a permit. `None` if a [`Kind::Long`] permit is not free and no client can be closed for it.
    ///
    /// # Cancellation
    /// The queue position is lost, but no permit.
    async fn permit(&self, kind: Kind) -> Option<Permit> {
        let permits = self.permits(kind);
        if let Some(permit) = permits.try_take() {
            return Some(permit);
        }
        let waiter = permits.line_up();
        loop {
            let seen = waiter.grant.signal.seen();
            if let Some(permit) = waiter.take() {
                return Some(permit);
            }
            let patience = match self.displace(Some(kind)) {
                Ok(()) => GRACE,
                Err(_) if kind == Kind::Long => return None,
                Err(next) => next.min(GRACE),
            };
            within(patience, waiter.grant.signal.after(seen)).await;
        }
    }
}

impl Permits {
    fn new(count: usize) -> Rc<Self> {
        Rc::new(Self { free: Cell::new(count), waiting: RefCell::default() })
    }

    fn try_take(self: &Rc<Self>) -> Option<Permit> {
        self.free.set(self.free.get().checked_sub(1)?);
        Some(Permit(self.clone()))
    }

    fn line_up(self: &Rc<Self>) -> Waiter {
        let waiter = Waiter { permits: self.clone(), grant: Rc::default() };
        self.waiting.borrow_mut().push_back(Rc::downgrade(&waiter.grant));
        waiter
    }

    /// Hands the permit to the first task that still waits.
    fn release(&self) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(next) = waiting.pop_front() {
            if let Some(grant) = next.upgrade() {
                grant.granted.set(true);
                return grant.signal.raise();
            }
        }
        self.free.set(self.free.get() + 1);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Waiter {
    /// The permit, once granted.
    fn take(&self) -> Option<Permit> {
        self.grant.granted.take().then(|| Permit(self.permits.clone()))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.grant.granted.get() {
            self.permits.release();
        }
    }
}

impl Entry {
    /// Records the client's activity; an idle or closing client gives its permit back.
    pub(crate) fn note(&self, activity: Activity, now: Uptime) {
        if matches!(activity, Activity::Idle | Activity::Closing) {
            self.give_back();
        }
        let before = self.client.connected.get();
        // Each piece of an answer restarts the time; any other activity keeps its start.
        if before.activity != activity || activity == Activity::Writing {
            self.client.connected.set(Connected { activity, since: now });
        }
    }

    /// Waits for a permit, which replaces another kind; false if a [`Kind::Long`] one is refused.
    pub(crate) async fn obtain(&self, kind: Kind) -> bool {
        match (self.client.holds.get(), kind) {
            (Some(_), Kind::Large) => return true,
            (Some(held), _) if held == kind => return true,
            (Some(_) | None, Kind::Large | Kind::Answer | Kind::Long) => {}
        }
        let Some(permit) = self.guests.permit(kind).await else { return false };
        self.client.holds.set(Some(kind));
        self.permit.set(Some(permit));
        true
    }

    /// Gives the permit back after an answer; [`Kind::Large`] is kept until the client is idle.
    pub(crate) fn answered(&self) {
        if self.client.holds.get() != Some(Kind::Large) {
            self.give_back();
        }
    }

    fn give_back(&self) {
        self.client.holds.set(None);
        self.permit.set(None);
    }

    /// Removes the client: as an event listener it is limited elsewhere and can no longer be closed.
    pub(crate) fn leave(&self) {
        self.give_back();
        self.guests.clients.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.client));
        if let Some(task) = self.client.task.take() {
            task.detach();
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use async_executor::LocalExecutor;
    use futures_lite::future::yield_now;

    use super::*;
    use crate::runtime::run::block_on;

    #[test]
    fn a_permit_goes_to_those_who_wait_in_their_order_and_to_nobody_else() {
        let permits = Permits::new(1);
        let held = permits.try_take();
        let (first, second) = (permits.line_up(), permits.line_up());
        drop(held);
        assert!(permits.try_take().is_none(), "it is the first's already");
        assert!(second.take().is_none());
        let permit = first.take();
        assert!(permit.is_some() && first.take().is_none());
        drop(permit);
        drop(second.take().expect("the second's permit"));
        assert_eq!(permits.free.get(), 1);
    }

    #[test]
    fn who_leaves_the_line_hands_its_permit_on() {
        let permits = Permits::new(1);
        let held = permits.try_take();
        let (first, second, third) = (permits.line_up(), permits.line_up(), permits.line_up());
        // One waiter leaves before it has a permit, one after.
        drop(first);
        drop(held);
        drop(second);
        drop(third.take().expect("the third's permit"));
        assert_eq!(permits.free.get(), 1);
    }

    /// A client that obtains this and then does that for ever.
    fn client(guests: &Rc<Guests>, executor: &LocalExecutor<'static>, kind: Kind, then: Activity) {
        guests.admit(|entry| {
            executor.spawn(async move {
                entry.obtain(kind).await;
                entry.note(then, now());
                futures_lite::future::pending::<()>().await;
                drop(entry);
            })
        });
    }

    /// Lets all tasks run that can.
    async fn all_run() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    #[test]
    fn who_waits_for_a_permit_gets_it_from_somebody_who_rests_with_it() {
        let guests = Rc::new(Guests::new());
        let executor = LocalExecutor::new();
        block_on(&executor, async {
            let most = guests.answers.free.get();
            for _ in 0..most {
                client(&guests, &executor, Kind::Answer, Activity::Writing);
            }
            let begun = now();
            all_run().await;
            assert_eq!(guests.answers.free.get(), 0);
            drop(guests.permit(Kind::Answer).await.expect("a permit"));
            assert!(now() - begun >= GRACE, "not before its grace is over");
            assert_eq!(guests.clients.borrow().len(), most - 1);
            for _ in 0..guests.large.free.get() + 1 {
                client(&guests, &executor, Kind::Large, Activity::Body);
            }
            all_run().await;
            assert_eq!(guests.clients.borrow().len(), most - 1 + 64, "the first gave way at once");
        });
    }

    #[test]
    fn whoever_is_closed_gives_back_what_it_holds() {
        let guests = Rc::new(Guests::new());
        let executor = LocalExecutor::new();
        block_on(&executor, async {
            client(&guests, &executor, Kind::Answer, Activity::Writing);
            yield_now().await;
            let all = guests.answers.free.get();
            assert!(guests.close_one());
            assert!(!guests.close_one(), "nobody is left");
            yield_now().await;
            assert_eq!(guests.answers.free.get(), all + 1);
        });
    }
}
