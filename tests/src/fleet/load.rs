//! Measurements: the host's load over time, and the number of CONNECTED agents.

use super::clock::{MILLI, Micros, SECOND};

/// Length of a time slice.
pub const SLICE: Micros = 100 * MILLI;

/// Measurements in one time slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// QMP events that reached the daemon.
    pub events: u64,
    /// Reads of a ring, or of a line from a port.
    pub reads: u64,
    /// CPU time of the work that began in it.
    pub cpu: Micros,
    /// Calls from or to the daemon that failed: refused, or timed out.
    pub failed: u64,
    /// Largest number of calls in progress.
    pub calls: u64,
    /// Agents CONNECTED to the current daemon process, at its end.
    pub connected: u32,
}

/// All time slices from 0 on.
#[derive(Debug, Default)]
pub struct Load {
    slices: Vec<Slice>,
    calls: u64,
    connected: u32,
    /// Time and new number of CONNECTED agents, for each change.
    changes: Vec<(Micros, u32)>,
}

impl Load {
    /// The slice that contains `now`.
    pub(super) fn slice(&mut self, now: Micros) -> &mut Slice {
        let at = usize::try_from(now / SLICE).unwrap_or(usize::MAX);
        while self.slices.len() <= at {
            let (calls, connected) = (self.calls, self.connected);
            self.slices.push(Slice { calls, connected, ..Slice::default() });
        }
        &mut self.slices[at]
    }

    pub(super) fn call_began(&mut self, now: Micros) {
        self.calls += 1;
        let calls = self.calls;
        let slice = self.slice(now);
        slice.calls = slice.calls.max(calls);
    }

    pub(super) fn call_ended(&mut self) {
        self.calls -= 1;
    }

    pub(super) fn connected(&mut self, now: Micros, count: u32) {
        self.slice(now).connected = count;
        self.connected = count;
        self.changes.push((now, count));
    }

    /// The slices from `begin` to `end`.
    #[must_use]
    pub fn between(&self, begin: Micros, end: Micros) -> &[Slice] {
        let at = |when: Micros| {
            usize::try_from(when / SLICE).unwrap_or(usize::MAX).min(self.slices.len())
        };
        &self.slices[at(begin)..at(end)]
    }

    /// Time from `since` until at least `count` agents were CONNECTED.
    #[must_use]
    pub fn reached(&self, since: Micros, count: u32) -> Option<Micros> {
        let reached = self.changes.iter().find(|(when, now)| *when >= since && *now >= count);
        reached.map(|(when, _)| when - since)
    }
}

/// Mean over these slices, per second.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn per_second(slices: &[Slice], what: impl Fn(&Slice) -> u64) -> f64 {
    let sum: u64 = slices.iter().map(what).sum();
    sum as f64 * SECOND as f64 / (slices.len().max(1) as u64 * SLICE) as f64
}

/// Largest value of a slice, per second.
#[must_use]
pub fn peak(slices: &[Slice], what: impl Fn(&Slice) -> u64) -> u64 {
    slices.iter().map(what).max().unwrap_or_default() * (SECOND / SLICE)
}
