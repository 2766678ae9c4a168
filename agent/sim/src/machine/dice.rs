//! Random decisions, reproducible by a seed or given in advance.

use crate::sim_prelude::*;

/// `SplitMix64`: small, and good with every seed.
#[derive(Debug, Default)]
pub struct Dice {
    state: Cell<u64>,
    /// Results given in advance.
    decided: RefCell<VecDeque<u8>>,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self { state: Cell::new(seed), ..Self::default() }
    }

    /// Uses these bytes first, one per decision (four above 256 choices), then random ones.
    pub fn decided(throws: &[u8]) -> Self {
        Self { decided: RefCell::new(throws.iter().copied().collect()), ..Self::default() }
    }

    fn next(&self) -> u64 {
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        let mut decided = self.decided.borrow_mut();
        if decided.is_empty() {
            return self.next() % end;
        }
        let bytes = if end <= 1 << 8 { 1 } else { 4 };
        let number = (0..bytes).map(|_| decided.pop_front().map_or(0, u64::from));
        number.fold(0, |all, byte| all << 8 | byte) % end
    }

    pub(crate) fn between(&self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true once in `times` on average; never for 0.
    pub(crate) fn one_in(&self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&self, those: &[T]) -> T {
        let index = self.below(u64::try_from(those.len()).expect("a short list"));
        those[usize::try_from(index).expect("an index")]
    }

    /// Returns a number up to `length`, inclusive.
    pub(crate) fn up_to(&self, length: usize) -> usize {
        let length = u64::try_from(length).expect("a length");
        usize::try_from(self.between(0, length)).expect("a length")
    }
}
