//! The whole agent in a scenario of the simulation (`agent/sim`), whose decisions come from the
//! input. Invariants: the oracle's rules: no request exceeds its limit, Ready is neither lost nor
//! invented, host and agent agree in time, budgets hold, and nothing is answered twice.

use mote_sim::{Dice, tell_by};

/// One input.
///
/// # Panics
/// With the rule that does not hold.
pub fn run(data: &[u8]) {
    let outcome = tell_by(Dice::decided(data), false);
    assert_eq!(outcome.failure, None);
}
