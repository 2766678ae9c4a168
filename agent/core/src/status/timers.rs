//! The timers of the status channel in one table.

use crate::time::Uptime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    // The first three write a line, so a failed write delays them.
    /// Write STARTED. Runs in STARTED and CONNECTED.
    Announce,
    /// Write STARTED without an event. Runs in CONNECTED, unless the host reads every line.
    Refresh,
    /// Write STOPPED, then STARTED, for a host that does not call. Runs in STARTED, and once in
    /// CONNECTED if no host has ever called.
    Turn,
    /// Make the shell call the host for a verification. Stops once the shell has started the call.
    Call,
    /// Fail a verification that takes too long. Runs during each verification.
    Expire,
    /// Verify the known address. Runs only while there is no verification.
    Retry,
    /// Follow the latest CONNECT line. Runs while one is pending.
    Follow,
}

/// Number of timers that write a line.
const LINES: usize = Timer::Call as usize;
const COUNT: usize = Timer::Follow as usize + 1;

/// Due time of each timer; `None` if it does not run.
#[derive(Debug, Default)]
pub(super) struct Timers([Option<Uptime>; COUNT]);

impl Timers {
    #[expect(clippy::indexing_slicing, reason = "the array has a slot for each timer")]
    fn slot(&mut self, timer: Timer) -> &mut Option<Uptime> {
        &mut self.0[timer as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "the array has a slot for each timer")]
    pub(super) fn get(&self, timer: Timer) -> Option<Uptime> {
        self.0[timer as usize]
    }

    pub(super) fn set(&mut self, timer: Timer, when: Uptime) {
        *self.slot(timer) = Some(when);
    }

    /// Brings the timer forward to `when`, if it runs and is due later.
    pub(super) fn advance(&mut self, timer: Timer, when: Uptime) {
        let slot = self.slot(timer);
        *slot = slot.map(|due| due.min(when));
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        *self.slot(timer) = None;
    }

    pub(super) fn stop_all(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_due(&self, timer: Timer, now: Uptime) -> bool {
        self.get(timer).is_some_and(|due| due <= now)
    }

    /// Returns when the first timer is due. Timers that write a line are not due before `blocked`.
    pub(super) fn next(&self, blocked: Uptime) -> Option<Uptime> {
        let (lines, others) = self.0.split_at(LINES);
        let first = |timers: &[Option<Uptime>]| timers.iter().flatten().min().copied();
        let line = first(lines).map(|due| due.max(blocked));
        [line, first(others)].into_iter().flatten().min()
    }
}
