//! The virtual clock: an ordered queue of events, and reproducible pseudo-random numbers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use mote_core::time::Uptime;

/// Microseconds since the simulation began.
pub type Micros = u64;

/// One millisecond.
pub const MILLI: Micros = 1_000;
/// One second.
pub const SECOND: Micros = 1_000_000;

/// The agents' uptime. It is the same for all, since they use only differences.
#[must_use]
pub fn uptime(now: Micros) -> Uptime {
    Uptime(Duration::from_micros(now))
}

/// An uptime in microseconds, rounded up.
#[must_use]
pub fn micros(then: Uptime) -> Micros {
    u64::try_from(then.0.as_nanos().div_ceil(1_000)).unwrap_or(Micros::MAX)
}

/// Queue of events by time; events of one time are in the order of insertion.
#[derive(Debug)]
pub struct Agenda<E> {
    heap: BinaryHeap<Reverse<(Micros, u64, E)>>,
    count: u64,
}

impl<E: Ord> Default for Agenda<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }
}

impl<E: Ord> Agenda<E> {
    /// Adds an event at time `when`.
    pub fn at(&mut self, when: Micros, event: E) {
        self.count += 1;
        self.heap.push(Reverse((when, self.count, event)));
    }

    /// Removes the next event before `end`.
    pub fn next(&mut self, end: Micros) -> Option<(Micros, E)> {
        if self.heap.peek()?.0.0 >= end {
            return None;
        }
        let Reverse((when, _, event)) = self.heap.pop()?;
        Some((when, event))
    }
}

/// `SplitMix64`, so that one seed always gives the same run.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}
