//! The cores: what is to be done waits in one line, as in Go's scheduler, and each takes its time.

use std::collections::VecDeque;

use super::clock::Micros;

/// Cores and what waits for them.
#[derive(Debug)]
pub(super) struct Cpu<W> {
    free: usize,
    waiting: VecDeque<(W, Micros)>,
}

impl<W> Cpu<W> {
    pub(super) fn new(cores: usize) -> Self {
        Self { free: cores, waiting: VecDeque::new() }
    }

    /// Something to do.
    pub(super) fn queue(&mut self, work: W, cost: Micros) {
        self.waiting.push_back((work, cost));
    }

    /// What is begun now on a free core, and how long it takes. What nobody wants any longer is
    /// passed over.
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

    /// A core has done what it had begun.
    pub(super) fn done(&mut self) {
        self.free += 1;
    }
}
