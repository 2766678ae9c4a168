//! What one more of each thing costs the agent, in bytes and in instructions: how it is measured, what
//! it may be, and the page that says it.

pub mod budget;
pub mod callgrind;
pub mod page;

use std::ops::Range;

use crate::proc;

/// Costs are looked at with so many things there.
pub const STEPS: [usize; 4] = [1, 10, 100, 1000];

/// What a thing costs, by how many of them there are.
#[derive(Clone, Debug)]
pub struct Row {
    /// The thing.
    pub name: &'static str,
    /// What there are more and more of, or why there cannot be 1,000 of them.
    pub note: &'static str,
    /// How many, and the cost of one.
    pub cost: Vec<(usize, u64)>,
    /// With how many of them the budget holds it: elsewhere timing has its part in the figure.
    pub held: Range<usize>,
}

/// Held with any number.
pub const ALWAYS: Range<usize> = 0..usize::MAX;

/// Bytes of a process that are nobody else's and no file's.
///
/// # Panics
/// If it is gone.
#[must_use]
pub fn anonymous(pid: u32) -> u64 {
    proc::memory(pid, "smaps_rollup", "Anonymous:") * 1024
}
