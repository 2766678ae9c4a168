//! Remembers the state that an application reported, and decides when to repeat it to the host
//! (P§6, decisions §2). `ready_when` reports Ready without an application.

#[cfg(feature = "alloc")]
use alloc::string::String;
use core::cell::Cell;

use crate::json::{Value, Writer};
use crate::named::named;

/// Writes the body of a `PATCH /1.0` that sets this state.
pub fn write_state(json: &mut Writer<'_>, state: &str) {
    json.begin_object();
    json.pair("state", state);
    json.end_object();
}

/// Returns the host's record of the state from its answer to `GET /1.0`, if it has one.
#[cfg(feature = "alloc")]
pub fn host_state(answer: &[u8]) -> Option<String> {
    crate::json::Envelope::parse(answer).ok()?.metadata.member("state")?.string().ok()
}

named! {
    /// A state that an application can report, by its name in the API.
    pub enum ReadyState {
        Ready "Ready",
        Started "Started",
    }
}

impl ReadyState {
    /// Returns the state in the body of a `PATCH /1.0`.
    pub fn in_body(body: &[u8]) -> Option<Self> {
        let named = Value::parse(body).ok()?.member("state")?;
        Self::ALL.into_iter().find(|state| named.is(state.name()))
    }
}

/// Number of shares of the Ready lock: more than there are clients.
const SHARES: usize = 1 << 16;

/// The Ready lock, and the last state since boot that the host accepted, if any; `Started` counts
/// as soon as it is sent. A report by an application takes one share of the lock. A report by the
/// agent takes all shares, because it could otherwise overtake a newer state.
#[derive(Debug, Default)]
pub struct Ready {
    last: Cell<Option<ReadyState>>,
    held: Cell<usize>,
}

/// Shares of the Ready lock, released when dropped.
#[derive(Debug)]
pub struct Hold<'r> {
    ready: &'r Ready,
    shares: usize,
}

impl Ready {
    /// Reads the file, which survives the agent but not a reboot. Ignores unknown content.
    pub fn restore(file: &[u8]) -> Self {
        let text = core::str::from_utf8(file).unwrap_or_default();
        Self { last: Cell::new(ReadyState::parse(text.trim_ascii())), held: Cell::default() }
    }

    pub fn set(&self, state: ReadyState) {
        self.last.set(Some(state));
    }

    pub fn get(&self) -> Option<ReadyState> {
        self.last.get()
    }

    /// Returns Ready if it must be repeated: the host, which recorded `host_state`, has lost it.
    pub fn on_connected(&self, host_state: &str) -> Option<ReadyState> {
        self.get().filter(|state| *state == ReadyState::Ready && host_state == "Started")
    }

    /// Begins a report by an application; `None` while the agent's own report is in progress.
    pub fn share(&self) -> Option<Hold<'_>> {
        self.hold(1)
    }

    /// Begins a report by the agent itself; `None` while any other report is in progress.
    pub fn exclusive(&self) -> Option<Hold<'_>> {
        self.hold(SHARES)
    }

    pub fn is_held(&self) -> bool {
        self.held.get() > 0
    }

    fn hold(&self, shares: usize) -> Option<Hold<'_>> {
        let held = self.held.get() + shares;
        (held <= SHARES).then(|| {
            self.held.set(held);
            Hold { ready: self, shares }
        })
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.ready.held.set(self.ready.held.get() - self.shares);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_only_a_lost_ready() {
        let ready = Ready::default();
        assert_eq!(ready.on_connected("Started"), None);
        ready.set(ReadyState::Ready);
        assert_eq!(ready.on_connected("Started"), Some(ReadyState::Ready));
        assert_eq!(ready.on_connected("Ready"), None);
        // LXD 5.0 has no states.
        assert_eq!(ready.on_connected(""), None);
        ready.set(ReadyState::Started);
        assert_eq!(ready.on_connected("Started"), None);
    }

    #[test]
    fn restores_the_file_and_ignores_invalid_ones() {
        assert_eq!(Ready::restore(b"Ready\n").get(), Some(ReadyState::Ready));
        for bad in [&b""[..], b"ready", b"\xff\xfe", b"Ready Ready"] {
            assert_eq!(Ready::restore(bad).get(), None);
        }
    }
}
