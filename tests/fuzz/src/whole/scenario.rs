//! The whole agent in a scenario of the simulation (`agent/sim`), whose decisions come from the
//! input. Invariants: the oracle's rules: no request exceeds its limit, Ready is neither lost nor
//! invented, host and agent agree in time, budgets hold, and each request is answered once.

use mote_sim::{Dice, run_with};

pub fn run(data: &[u8]) {
    let outcome = run_with(Dice::decided(data), false);
    assert_eq!(outcome.failure, None);
}
