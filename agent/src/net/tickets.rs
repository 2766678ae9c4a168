//! TLS session tickets of one host, stored for rustls. Calls can wait for one.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use mote_core::tls::tickets::{Earner, Tickets, Turn};

use crate::net::tls_types::{Group, Ticket};
use crate::runtime::clock::within;
use crate::runtime::wake::Waiting;

/// Time limit for a ticket of another call; after that a full handshake is faster.
const TICKET_WAIT: Duration = Duration::from_millis(250);

/// Ticket store of one pinned certificate.
#[derive(Default)]
pub(crate) struct Store(Mutex<State>);

#[derive(Default)]
struct State {
    tickets: Tickets<Ticket>,
    /// The key exchange that the host chose last.
    group: Option<Group>,
    waiting: Waiting,
}

impl Store {
    /// Waits until a call may begin; `Some` if other calls may wait for the tickets of its full
    /// handshake. The caller must begin its handshake, which takes a ticket, before it next waits, and
    /// keep the value until the host has answered.
    pub(crate) async fn turn(self: &Arc<Self>) -> Option<Earning> {
        let admitted = poll_fn(|context| {
            let mut state = self.state();
            match state.tickets.turn() {
                Turn::Go => Poll::Ready(None),
                Turn::Earn(earner) => Poll::Ready(Some(earner)),
                Turn::Wait => {
                    state.waiting.add(context.waker());
                    Poll::Pending
                }
            }
        });
        let earner = within(TICKET_WAIT, admitted).await.flatten()?;
        Some(Earning { store: self.clone(), earner, answered: false })
    }

    /// Keeps a ticket.
    pub(crate) fn put(&self, ticket: Ticket) {
        self.change(|tickets| tickets.put(ticket));
    }

    /// Takes an unused ticket.
    pub(crate) fn take(&self) -> Option<Ticket> {
        self.state().tickets.take()
    }

    /// Drops all tickets. Waiting calls find none.
    pub(crate) fn forget(&self) {
        self.state().tickets = Tickets::default();
    }

    /// Stores the key exchange that the host chose.
    pub(crate) fn choose(&self, group: Group) {
        self.state().group = Some(group);
    }

    /// Returns the key exchange that it chose last.
    pub(crate) fn chosen(&self) -> Option<Group> {
        self.state().group
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Tickets<Ticket>)) {
        let mut state = self.state();
        change(&mut state.tickets);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.wake();
    }
}

/// A call's permit for a full handshake; other calls may wait for its tickets.
pub(crate) struct Earning {
    store: Arc<Store>,
    earner: Earner,
    answered: bool,
}

impl Earning {
    /// Records that the host has answered; its tickets arrived before.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Earning {
    fn drop(&mut self) {
        self.store.change(|tickets| tickets.earned(self.earner, self.answered));
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Store")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::run::block_on;
    use smol::LocalExecutor;

    #[test]
    fn a_call_without_an_answer_says_nothing_of_a_hosts_tickets() {
        let store = Arc::new(Store::default());
        let earning = || block_on(&LocalExecutor::new(), store.turn());
        drop(earning().expect("the first earns"));
        assert!(earning().is_some(), "so does the next");
        earning().expect("and this").answered();
        assert!(earning().is_none(), "now it is known that the host gives none");
    }
}
