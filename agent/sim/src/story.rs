//! Histories: one by chance for each seed, and a day with a host that dies every minute.

use std::rc::Rc;

use crate::faults::{LONGEST, mend, strike};
use crate::host::caller::AGENT;
use crate::machine::dice::Dice;
use crate::machine::executor::{MILLI, Micros, SECOND, Zone};
use crate::machine::kernel::Stage;
use crate::machine::wait::until;
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

/// How long a program that is to start anew may wait for the host's commands, which come every 20 s: their results count for
/// 10 s at most, and what runs longest is 8 s.
const ANEW: Micros = 60 * SECOND;
/// An agent makes room for another, or ends, within 5 s.
const REPLACED: Micros = 8 * SECOND;
/// What the first one knew the next one knows: one verification, 3 s at most (decisions §1).
const KNOWS: Micros = 3 * SECOND + 500 * MILLI;

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
    world.start_agent(dice.pick(&[Stage::Root, Stage::Early]));
    let end = dice.between(5 * SECOND, 90 * SECOND);
    let task = world.clone();
    world.sim.spawn(world.sim.process(Zone::Host), async move {
        let (sim, mut now) = (&task.sim, 0);
        while now < end {
            now = (now + sim.dice.between(10 * MILLI, 10 * SECOND)).min(end);
            until(sim, Zone::Host, now).await;
            strike(&task);
        }
    });
    world.sim.run(end);
    // What was begun has its end, a suspend too.
    let mut quiet = end.max(world.sim.now(Zone::Host)) + LONGEST;
    while world.sim.is_frozen() && world.sim.failure().is_none() {
        quiet += SECOND;
        world.sim.run(quiet);
    }
    world.sim.run(quiet);
    mend(&world);
    world.calm();
    world.sim.run(quiet + AGREE);
    // A new agent has the host call it once more: that the host is lost then would be no fault.
    let is_same = !replace(&world);
    if is_same && !has_mishaps && world.sim.failure().is_none() {
        world.starve(true);
        wait(&world, STARVED);
        world.starve(false);
        wait(&world, SECOND);
    }
    world.judge()
}

fn wait(world: &Rc<World>, length: Micros) {
    world.sim.run(world.sim.now(Zone::Host) + length);
}

/// Puts another agent into the first one's place while all is well, and then perhaps another host. Neither Ready nor
/// the host's address is lost over that. Returns whether it tried.
fn replace(world: &Rc<World>) -> bool {
    let (sim, before) = (&world.sim, world.agents.number());
    if sim.failure().is_some() || world.disagreement().is_some() {
        return true;
    }
    let kind = sim.dice.below(6);
    if kind < 3 {
        // The first one has to see to the end of what the host runs.
        world.host.runs();
        wait(world, sim.dice.between(MILLI, SECOND));
    }
    let (what, limit) = match kind {
        0 => {
            world.renew_agent();
            ("starts anew", ANEW)
        }
        1 if world.agents.makes_room() => {
            world.start_second();
            ("is replaced", REPLACED)
        }
        2 => {
            world.stop_agent();
            world.start_later(Stage::Root, MILLI);
            ("ends and is back", REPLACED)
        }
        _ => return false,
    };
    let is_kept = what != "ends and is back";
    let end = sim.now(Zone::Host) + limit;
    while world.agents.number() == before {
        if sim.failure().is_some() || sim.now(Zone::Host) > end {
            return true;
        }
        wait(world, MILLI);
        if is_kept && !world.net.is_taken(AGENT) {
            sim.fail(format!("an agent {what}, and the host's calls are refused meanwhile"));
        }
    }
    if what == "is replaced" && sim.dice.one_in(2) {
        // And once more, while the first one may still see to its commands.
        world.start_agent(Stage::Root);
    }
    wait(world, if is_kept { KNOWS } else { BACK });
    if let Some(why) = world.disagreement() {
        sim.fail(format!("an agent {what}: {why}"));
    }
    if sim.dice.one_in(2) {
        world.host.start();
        wait(world, BACK + SECOND);
        if let Some(why) = world.disagreement() {
            sim.fail(format!("an agent {what}, then the host: {why}"));
        }
    }
    true
}

/// A day with a host that dies every minute. Returns the longest time until it knew the agent again.
pub fn day(seed: u64, minutes: u64, is_loud: bool) -> (Outcome, Micros) {
    let world = World::new(Dice::new(seed), is_loud);
    let (sim, dice) = (&world.sim, &world.sim.dice);
    world.populate(2);
    world.host.start();
    world.start_agent(Stage::Root);
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
