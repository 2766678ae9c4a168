//! The cores: work waits in one queue, as in Go's scheduler, and occupies a core for its CPU time.

use std::collections::VecDeque;

use super::clock::Micros;

/// Free cores and the queue of work.
#[derive(Debug)]
pub(super) struct Cpu<W> {
    free: usize,
    waiting: VecDeque<(W, Micros)>,
}

impl<W> Cpu<W> {
    pub(super) fn new(cores: usize) -> Self {
        Self { free: cores, waiting: VecDeque::new() }
    }

    /// Adds work with its CPU time.
    pub(super) fn queue(&mut self, work: W, cost: Micros) {
        self.waiting.push_back((work, cost));
    }

    /// Begins the next work if a core is free; returns it and its CPU time. Drops work that is no
    /// longer `wanted`.
    pub(super) fn begin(&mut self, wanted: impl Fn(&W) -> bool) -> Option<(W, Micros)> {
        if self.free == 0 {
            return None;
        }
        while let Some((work, cost)) = self.waiting.pop_front() {
            if wanted(&work) {
                self.free -= 1;
                return Some((work, cost));
            }
        }
        None
    }

    /// Frees a core whose work is done.
    pub(super) fn done(&mut self) {
        self.free += 1;
    }
}
