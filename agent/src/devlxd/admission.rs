//! Limits on guest clients: connections, places, and calls to the host. The core decides: `devlxd/users.rs` who
//! gets a place or a call, `http/admission.rs` which client is closed in favour of another.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use async_executor::Task;
use mote_core::devlxd::users::{Place, User, Users};
use mote_core::http::admission::{Activity, Bounds, Connected, GRACE, first_to_go};
use mote_core::time::Uptime;
use rustix::process::{Resource, getrlimit};

use crate::runtime::clock::{now, sleep, within};
use crate::runtime::wake::Signal;

/// How long a client may take nothing of a long answer while another waits to have one.
const READING: Duration = Duration::from_secs(1);

/// The connected guest clients, and their permits.
pub(crate) struct Guests {
    most: usize,
    clients: RefCell<Vec<Rc<Client>>>,
    users: RefCell<Users>,
    /// Those who wait for a permit, in their order. Whoever is here may not take one.
    waiting: RefCell<VecDeque<(User, Place, Weak<Grant>)>>,
}

/// A permit to be in a place, given back when dropped.
struct Permit(Rc<Guests>, User, Place);

/// A waiter's slot in the queue, set once it has a permit.
#[derive(Default)]
struct Grant {
    granted: Cell<bool>,
    signal: Signal,
}

/// A waiting task. If dropped after a permit was granted, that goes to the next one.
struct Waiter {
    guests: Rc<Guests>,
    user: User,
    place: Place,
    grant: Rc<Grant>,
}

/// A connected client.
struct Client {
    user: User,
    connected: Cell<Connected>,
    holds: Cell<Option<Place>>,
    task: Cell<Option<Task<()>>>,
}

/// A client's registration, removed when dropped.
pub(crate) struct Entry {
    guests: Rc<Guests>,
    client: Rc<Client>,
    permit: Cell<Option<Permit>>,
    line: Cell<Option<Permit>>,
}

impl Guests {
    /// No clients, and the places that follow from the number of descriptors we may have.
    pub(crate) fn new() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let bounds = Bounds::of(usize::try_from(descriptors).unwrap_or(usize::MAX));
        Self {
            most: bounds.connections,
            clients: RefCell::default(),
            users: RefCell::new(Users::new(bounds)),
            waiting: RefCell::default(),
        }
    }

    /// Connections to accept before their clients run, number of: few of all, as each may have closed one that
    /// still has its descriptor; one where all may be served, or a client would be closed before it is read.
    pub(crate) fn at_once(&self) -> usize {
        (self.most / 8).saturating_sub(32)
    }

    /// Makes room for one more connection. Waits only while all clients are being served.
    pub(crate) async fn make_room(&self) {
        while self.clients.borrow().len() >= self.most && !self.close_one() {
            sleep(GRACE).await;
        }
    }

    /// Closes the first client that can be closed, of the user with most if one of those can; false if there
    /// is none.
    pub(crate) fn close_one(&self) -> bool {
        let largest = self.users.borrow().largest();
        self.displace(&|client| client.user == largest, Duration::ZERO).is_ok()
            || self.displace(&|_| true, Duration::ZERO).is_ok()
    }

    /// Adds a client of this user id, served by the task that `serve` starts with its entry.
    pub(crate) fn admit(self: &Rc<Self>, uid: u32, serve: impl FnOnce(Entry) -> Task<()>) {
        let connected = Connected { activity: Activity::Silent, since: now() };
        let client = Rc::new(Client {
            user: self.users.borrow_mut().join(uid, now()),
            connected: Cell::new(connected),
            holds: Cell::default(),
            task: Cell::default(),
        });
        self.clients.borrow_mut().push(client.clone());
        let entry = Entry {
            guests: self.clone(),
            client: client.clone(),
            permit: Cell::default(),
            line: Cell::default(),
        };
        client.task.set(Some(serve(entry)));
    }

    /// Closes the first client that can be closed of those `among` selects, once it has rested for `grace`.
    ///
    /// # Errors
    /// How long to wait before the next attempt.
    fn displace(&self, among: &dyn Fn(&Client) -> bool, grace: Duration) -> Result<(), Duration> {
        let now = now();
        let mut clients = self.clients.borrow_mut();
        let all = clients.iter().enumerate().filter(|(_, client)| among(client));
        let mut all = all.map(|(index, client)| (index, client.connected.get()));
        // `None`: all are being served, and one may be idle soon.
        let (index, first) = first_to_go(&mut all, now).ok_or(GRACE)?;
        if first.since + grace > now {
            return Err(first.since + grace - now);
        }
        // Its descriptor and permit are released when the executor next runs its task.
        drop(clients.swap_remove(index).task.take());
        Ok(())
    }

    fn try_take(self: &Rc<Self>, user: User, place: Place) -> Option<Permit> {
        let taken = self.users.borrow_mut().take(user, place);
        taken.then(|| Permit(self.clone(), user, place))
    }

    fn line_up(self: &Rc<Self>, user: User, place: Place) -> Waiter {
        let waiter = Waiter { guests: self.clone(), user, place, grant: Rc::default() };
        self.waiting.borrow_mut().push_back((user, place, Rc::downgrade(&waiter.grant)));
        waiter
    }

    /// Waits for a permit. `None` if the place is not waited for, and no client of the user can be closed for it.
    ///
    /// # Cancellation
    /// The queue position is lost, but no permit.
    async fn permit(self: &Rc<Self>, user: User, place: Place) -> Option<Permit> {
        let (waits, grace) = match place {
            Place::Line | Place::Listener => return self.try_take(user, place),
            // A request that is not complete yet is closed without grace.
            Place::Large => (true, Duration::ZERO),
            Place::Answer => (true, GRACE),
            Place::Long => (false, GRACE),
            // There is one, so one who is only slow to read would often be closed for another.
            Place::LongAnswer => (true, READING),
        };
        if let Some(permit) = self.try_take(user, place) {
            return Some(permit);
        }
        let waiter = self.line_up(user, place);
        let among = |client: &Client| {
            client.holds.get() == Some(place) && (client.user == user || place == Place::LongAnswer)
        };
        loop {
            let seen = waiter.grant.signal.seen();
            if let Some(permit) = waiter.take() {
                return Some(permit);
            }
            let patience = match self.displace(&among, grace) {
                Ok(()) => GRACE,
                Err(_) if !waits => return None,
                Err(next) => next.min(GRACE),
            };
            within(patience, waiter.grant.signal.after(seen)).await;
        }
    }

    /// Gives a permit back, and hands it to the first task that waits for such a one and may have it.
    fn release(&self, user: User, place: Place) {
        let mut users = self.users.borrow_mut();
        users.give_back(user, place);
        let mut next = None;
        self.waiting.borrow_mut().retain(|(user, of, grant)| {
            let Some(grant) = grant.upgrade() else { return false };
            let granted = next.is_none() && *of == place && users.take(*user, place);
            if granted {
                next = Some(grant);
            }
            !granted
        });
        if let Some(next) = next {
            next.granted.set(true);
            next.signal.raise();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release(self.1, self.2);
    }
}

impl Waiter {
    /// The permit, once granted.
    fn take(&self) -> Option<Permit> {
        let granted = self.grant.granted.take();
        granted.then(|| Permit(self.guests.clone(), self.user, self.place))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        drop(self.take());
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

    /// Waits until it is this client's turn to call the host; false if too many of its user wait.
    pub(crate) async fn turn(&self) -> bool {
        let (guests, user) = (&self.guests, self.client.user);
        let Some(place) = guests.try_take(user, Place::Line) else { return false };
        self.line.set(Some(place));
        let turn = guests.users.borrow_mut().charge(user, now());
        let wait = || guests.users.borrow_mut().wait(user, turn, now());
        while let Some(wait) = wait() {
            sleep(wait).await;
        }
        true
    }

    /// Waits for a permit, which replaces another kind; false if one is refused that is not waited for.
    pub(crate) async fn obtain(&self, place: Place) -> bool {
        match self.client.holds.get() {
            Some(_) if place == Place::Large => return true,
            Some(held) if held == place => return true,
            // It may wait for long: others are answered meanwhile.
            Some(_) if place == Place::LongAnswer => self.give_back(),
            Some(_) | None => {}
        }
        let permit = self.guests.permit(self.client.user, place).await;
        let Some(permit) = permit else { return false };
        self.client.holds.set(Some(place));
        self.permit.set(Some(permit));
        true
    }

    /// The permit of a long answer in place of another, if it is free and nobody waits for it.
    pub(crate) fn try_obtain_long_answer(&self) -> bool {
        let place = Place::LongAnswer;
        let Some(permit) = self.guests.try_take(self.client.user, place) else { return false };
        self.client.holds.set(Some(place));
        self.permit.set(Some(permit));
        true
    }

    /// Gives the permits back after an answer; [`Place::Large`] is kept until the client is idle.
    pub(crate) fn answered(&self) {
        self.line.set(None);
        if self.client.holds.get() != Some(Place::Large) {
            self.give_back();
        }
    }

    fn give_back(&self) {
        self.client.holds.set(None);
        self.permit.set(None);
    }

    /// Removes the client: an event listener, who keeps its permit, can no longer be closed for others.
    pub(crate) fn leave(&self) {
        let mut clients = self.guests.clients.borrow_mut();
        clients.retain(|other| !Rc::ptr_eq(other, &self.client));
        drop(clients);
        if let Some(task) = self.client.task.take() {
            task.detach();
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
        self.guests.users.borrow_mut().leave(self.client.user);
    }
}

#[cfg(test)]
mod tests;
