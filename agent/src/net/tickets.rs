//! Stores the TLS session tickets of one host for rustls. A call can wait for a ticket.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use mote_core::tls::tickets::{Earner, Tickets, Turn};

use crate::net::tls_types::{Group, Ticket};
use crate::runtime::{wake::Waiting, within};

/// How long to wait for another call's ticket; after that a full handshake is faster.
const TICKET_WAIT: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct Store(Mutex<State>);

#[derive(Default)]
struct State {
    tickets: Tickets<Ticket>,
    group: Option<Group>,
    waiting: Waiting,
}

impl Store {
    /// Waits until a call may begin. Returns `Some` if other calls may wait for the tickets of its
    /// full handshake. The caller must start its handshake, which takes a ticket, before its next
    /// wait, and keep the value until the host has answered.
    pub(crate) async fn admit(self: &Arc<Self>) -> Option<Earning> {
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

    pub(crate) fn put(&self, ticket: Ticket) {
        self.change(|tickets| tickets.put(ticket));
    }

    pub(crate) fn take(&self) -> Option<Ticket> {
        self.state().tickets.take()
    }

    pub(crate) fn forget(&self) {
        self.state().tickets = Tickets::default();
    }

    /// Stores the key exchange that the host chose last.
    pub(crate) fn choose(&self, group: Group) {
        self.state().group = Some(group);
    }

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

/// A call's permit for a full handshake, for whose tickets other calls may wait.
pub(crate) struct Earning {
    store: Arc<Store>,
    earner: Earner,
    answered: bool,
}

impl Earning {
    /// Records that the host has answered, which it does after sending its tickets.
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
    use crate::runtime::block_on;
    use smol::LocalExecutor;

    #[test]
    fn only_an_answered_call_shows_that_the_host_sends_no_tickets() {
        let store = Arc::new(Store::default());
        let earning = || block_on(&LocalExecutor::new(), store.admit());
        drop(earning().expect("the first earns"));
        assert!(earning().is_some(), "so does the next, as the first had no answer");
        earning().expect("and this").answered();
        assert!(earning().is_none(), "an answered call got no ticket");
    }
}
