//! Limits on guest clients. The core decides: `devlxd/quota.rs` what a client may hold and when it
//! may call the host, `http/admission.rs` which client is disconnected for another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::quota::{Bounds, Class, Quota, Quotas};
use mote_core::http::admission::{Activity, Connected, GRACE, eviction_candidate};
use mote_core::time::Uptime;
use smol::future::{poll_once, yield_now};

use crate::built::BoxFuture;
use crate::net::serve::Limiter;
use crate::runtime::{Signal, Task, now, sleep, within};
use crate::sys;

/// How far behind a client may be in reading a long answer ([`GRACE`] per piece) while another
/// waits. There is one long answer at a time; a shorter limit would often close slow readers.
const READING: Duration = Duration::from_secs(1);
/// Like [`READING`], for a waiting client of another user than root: root's clients come first.
const READING_FOR_USER: Duration = READING.saturating_add(GRACE.saturating_mul(2));

pub(crate) struct Guests {
    bounds: Bounds,
    clients: RefCell<Vec<Rc<Client>>>,
    quotas: RefCell<Quotas>,
    given_back: Signal,
}

struct Client {
    connected: Cell<Connected>,
    /// The quotas that it holds, a bit for each [`Quota`].
    held: Cell<u8>,
    task: Cell<Option<Task<()>>>,
}

/// A client's registration, removed when dropped.
pub(crate) struct Entry {
    guests: Rc<Guests>,
    client: Rc<Client>,
}

impl Guests {
    /// Creates an empty list of clients, with limits that follow from the descriptor limit.
    pub(crate) fn new() -> Self {
        let bounds = Bounds::of(sys::descriptors());
        Self {
            clients: RefCell::default(),
            quotas: RefCell::new(Quotas::new(&bounds)),
            bounds,
            given_back: Signal::default(),
        }
    }

    /// Connections to accept before their clients run.
    pub(crate) fn at_once(&self) -> usize {
        self.bounds.at_once()
    }

    /// Makes room for one more connection. Waits only while all clients are being served.
    pub(crate) async fn make_room(&self) {
        while self.clients.borrow().len() >= self.bounds.connections && !self.close_one() {
            sleep(GRACE).await;
        }
    }

    /// Closes the eviction candidate; returns false if there is none.
    pub(crate) fn close_one(&self) -> bool {
        self.evict(None, Duration::ZERO).is_ok()
    }

    /// Adds a client of this user. Serves it immediately until it must wait, because later clients
    /// may close it; then continues in a task.
    pub(crate) async fn admit(
        self: &Rc<Self>,
        user: u32,
        serve: impl FnOnce(Entry) -> BoxFuture<'static>,
        task: impl FnOnce(BoxFuture<'static>) -> Task<()>,
    ) {
        let class = Class::of(user);
        let connected = Connected { class, activity: Activity::Silent, since: now() };
        let client = Rc::new(Client {
            connected: Cell::new(connected),
            held: Cell::default(),
            task: Cell::default(),
        });
        self.clients.borrow_mut().push(client.clone());
        let mut served = serve(Entry { guests: self.clone(), client: client.clone() });
        if poll_once(&mut served).await.is_none() {
            client.task.set(Some(task(served)));
        }
    }

    /// Closes the eviction candidate if it has been idle for `grace`. With `quota`, only clients
    /// count that hold a unit of it and from which the given client may take it.
    /// Errors: how long to wait before the next attempt.
    fn evict(
        &self,
        quota: Option<(Quota, &Client)>,
        grace: Duration,
    ) -> Result<Rc<Client>, Duration> {
        let among = |client: &Client| {
            quota.is_none_or(|(quota, taker)| {
                // Root's quotas are not taken.
                client.holds(quota)
                    && (taker.class() == Class::Root || client.class() != Class::Root)
            })
        };
        let now = now();
        let mut clients = self.clients.borrow_mut();
        let all = clients.iter().enumerate().filter(|(_, client)| among(client));
        let all = all.map(|(index, client)| (index, client.connected.get()));
        // `None`: all are being served, but one may be idle soon.
        let (index, first) = eviction_candidate(all, now).ok_or(GRACE)?;
        if first.since + grace > now {
            return Err(first.since + grace - now);
        }
        // The client's descriptor and quotas are released when the executor next runs its task.
        let evicted = clients.swap_remove(index);
        drop(evicted.task.take());
        Ok(evicted)
    }

    /// Takes back one unit of a quota from a client; returns false if it holds none.
    fn give_back(&self, client: &Client, quota: Quota) -> bool {
        let holds = client.holds(quota);
        if holds {
            client.held.set(client.held.get() & !bit(quota));
            self.quotas.borrow_mut().give_back(client.class(), quota);
        }
        holds
    }
}

impl Client {
    fn holds(&self, quota: Quota) -> bool {
        self.held.get() & bit(quota) != 0
    }

    fn class(&self) -> Class {
        self.connected.get().class
    }
}

const fn bit(quota: Quota) -> u8 {
    1 << quota as u8
}

impl Entry {
    /// Waits until the client may call the host; returns false if too many clients wait.
    async fn queue(&self) -> bool {
        if !self.try_obtain(Quota::Queued) {
            return false;
        }
        let wait = self.guests.quotas.borrow_mut().call(self.client.class(), now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
        true
    }

    pub(crate) fn holds(&self, quota: Quota) -> bool {
        self.client.holds(quota)
    }

    pub(crate) fn try_obtain(&self, quota: Quota) -> bool {
        let client = &self.client;
        let taken =
            client.holds(quota) || self.guests.quotas.borrow_mut().take(client.class(), quota);
        if taken {
            client.held.set(client.held.get() | bit(quota));
        }
        taken
    }

    /// Takes one unit of a quota. If none is left, closes an idle client that holds one, or waits;
    /// returns false if it must not wait. Cancellation: nothing is lost.
    pub(crate) async fn obtain(&self, quota: Quota) -> bool {
        let (grace, waits) = match quota {
            // A request that is not complete yet is closed without grace.
            Quota::LargeBody => (Duration::ZERO, true),
            Quota::LongReply if self.client.class() == Class::Root => (READING, true),
            Quota::LongReply => (READING_FOR_USER, true),
            Quota::Call => (GRACE, true),
            Quota::LongPoll => (GRACE, false),
            Quota::Queued => return self.queue().await,
            Quota::Listener => return self.try_obtain(quota),
        };
        loop {
            let seen = self.guests.given_back.seen();
            if self.try_obtain(quota) {
                return true;
            }
            match self.guests.evict(Some((quota, &self.client)), grace) {
                Ok(evicted) => {
                    // Taken over immediately, so that no other task is woken for it. The other task
                    // ends before this one continues.
                    self.guests.give_back(&evicted, quota);
                    self.try_obtain(quota);
                    yield_now().await;
                }
                Err(_) if !waits => return false,
                Err(next) => {
                    within(next.min(GRACE), self.guests.given_back.after(seen)).await;
                }
            }
        }
    }

    fn give_back(&self, quotas: &[Quota]) {
        for quota in quotas {
            if self.guests.give_back(&self.client, *quota) {
                self.guests.given_back.raise();
            }
        }
    }

    /// Returns the client's permit to call, because the client now waits for something else.
    pub(crate) fn has_called(&self) {
        self.give_back(&[Quota::Call, Quota::LongPoll]);
    }

    /// Removes the client: as an event listener, it keeps its quotas and cannot be evicted.
    pub(crate) fn leave(&self) {
        let mut clients = self.guests.clients.borrow_mut();
        clients.retain(|other| !Rc::ptr_eq(other, &self.client));
        drop(clients);
        if let Some(task) = self.client.task.take() {
            task.detach();
        }
    }
}

impl Limiter for Entry {
    fn note(&self, activity: Activity, now: Uptime) {
        if matches!(activity, Activity::KeptAlive | Activity::Closing) {
            self.give_back(&[Quota::LargeBody]);
        }
        let before = self.client.connected.get();
        // Each piece of an answer restarts the time, or extends it if the answer is long; any other
        // activity keeps its start.
        let is_same = before.activity == activity;
        let since = if is_same && activity != Activity::Writing {
            before.since
        } else if is_same && self.holds(Quota::LongReply) {
            now.min(before.since + GRACE)
        } else {
            now
        };
        self.client.connected.set(Connected { activity, since, ..before });
    }

    fn enlarge(&self) -> BoxFuture<'_> {
        Box::pin(async {
            self.obtain(Quota::LargeBody).await;
        })
    }

    /// A large buffer is kept until the client is idle, because it may contain more requests.
    fn answered(&self) {
        use Quota::{Call, LongPoll, LongReply, Queued};
        self.give_back(&[Queued, Call, LongPoll, LongReply]);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
        self.answered();
        self.give_back(&[Quota::LargeBody, Quota::Listener]);
    }
}

#[cfg(test)]
mod tests;
