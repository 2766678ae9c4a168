//! Histories: one by chance for each seed, and a day with a host that dies every minute.

use crate::faults::{LONGEST, mend, strike};
use crate::machine::dice::Dice;
use crate::machine::executor::{MILLI, Micros, SECOND, Zone};
use crate::world::{Outcome, World};

/// After the last fault host and agent agree within this: the next call of a program in the guest, which comes
/// every 5 s; 30 s between two turns of STOPPED and STARTED, 1.5 s between those two, 1 s until QEMU tells the
/// host, or 10 s until it looks by itself, and its PUT of 3 s (decisions §1, P§2.3).
pub(crate) const AGREE: Micros = (5 + 30 + 2 + 10 + 3) * SECOND;
/// How long the agent lacks descriptors.
const STARVED: Micros = 15 * SECOND;
/// A host that starts and finds everything whole knows the agent after this: its own look after 10 s, and its
/// PUT of 3 s (decisions §1, P§2.3).
const BACK: Micros = 13 * SECOND;

/// Tells the history of that seed.
pub fn tell(seed: u64, is_loud: bool) -> Outcome {
    tell_by(Dice::new(seed), is_loud)
}

/// Tells the history that these dice make.
pub fn tell_by(dice: Dice, is_loud: bool) -> Outcome {
    let world = World::new(dice, is_loud);
    let dice = &world.sim.dice;
    world.net.mishaps.set(dice.pick(&[0, 0, 25, 100, 400]));
    let has_mishaps = world.net.mishaps.get() > 0;
    world.net.mishaps_inside.set(dice.pick(&[0, 0, 50, 400]));
    world.populate(dice.between(1, 5));
    if dice.one_in(2) {
        world.host.start();
    }
    world.start_agent();
    let end = dice.between(5 * SECOND, 90 * SECOND);
    let mut now = 0;
    while now < end && world.sim.failure().is_none() {
        now = (now + dice.between(10 * MILLI, 10 * SECOND)).min(end);
        world.sim.run(now);
        strike(&world);
    }
    // What was begun has its end, a suspend too.
    let mut quiet = now + LONGEST;
    while world.sim.is_frozen() && world.sim.failure().is_none() {
        quiet += SECOND;
        world.sim.run(quiet);
    }
    world.sim.run(quiet);
    mend(&world);
    world.calm();
    world.sim.run(quiet + AGREE);
    if !has_mishaps && world.sim.failure().is_none() {
        world.starve(true);
        world.sim.run(quiet + AGREE + STARVED);
        world.starve(false);
        world.sim.run(quiet + AGREE + STARVED + SECOND);
    }
    world.judge()
}

/// A day with a host that dies every minute. Returns the longest time until it knew the agent again.
pub fn day(seed: u64, minutes: u64, is_loud: bool) -> (Outcome, Micros) {
    let world = World::new(Dice::new(seed), is_loud);
    let (sim, dice) = (&world.sim, &world.sim.dice);
    world.populate(2);
    world.host.start();
    world.start_agent();
    world.calm();
    let mut longest = 0;
    for minute in 1..=minutes {
        let end = minute * 60 * SECOND;
        sim.run(end - dice.between(MILLI, 20 * SECOND));
        world.host.die();
        sim.run(end);
        if dice.one_in(10) {
            world.host.renew();
        }
        world.host.start();
        while let Some(why) = world.disagreement() {
            let took = sim.now(Zone::Host) - end;
            longest = longest.max(took);
            if took > BACK || sim.failure().is_some() {
                sim.fail(format!("minute {minute}: {why}"));
                return (world.outcome(), longest);
            }
            sim.run(sim.now(Zone::Host) + 50 * MILLI);
        }
        sim.run(end + BACK);
        world.oracle.host_keeps(world.host.keeps.get());
    }
    (world.judge(), longest)
}
