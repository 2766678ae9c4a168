//! The whole agent as one machine: a history of the simulation (`agent/sim`) whose chances are decided by the input: what the host, the guests, the network and the clock do, and when. What must hold: the rules of the
//! simulation. No request hangs past its limit, Ready is neither lost nor invented, host and agent agree in time,
//! budgets hold, nothing is answered twice.

use mote_sim::{Dice, tell_by};

/// One input.
///
/// # Panics
/// With the rule that does not hold.
pub fn run(data: &[u8]) {
    let outcome = tell_by(Dice::decided(data), false);
    assert_eq!(outcome.failure, None);
}
