//! Marginal costs of the agent in bytes and instructions: measuring, budget, and page.

pub mod budget;
pub mod callgrind;
pub mod front_page;
pub mod page;

use std::ops::Range;

use crate::proc;

/// Numbers of things for which costs are measured.
pub const STEPS: [usize; 4] = [1, 10, 100, 1000];

/// Cost of one thing, by the number of them.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: &'static str,
    /// Note in the page: what is counted, or why there cannot be 1,000 of it.
    pub note: &'static str,
    /// Number of things, and the cost of one.
    pub cost: Vec<(usize, u64)>,
    /// Numbers for which the budget limits the cost; for others it depends on timing.
    pub held: Range<usize>,
}

/// The budget limits the cost for any number.
pub const ALWAYS: Range<usize> = 0..usize::MAX;

/// Anonymous memory of a process, bytes.
pub fn anonymous(pid: u32) -> u64 {
    proc::memory(pid, "smaps_rollup", "Anonymous:") * 1024
}
