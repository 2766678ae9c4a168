//! Runs scenarios: a random one per seed, and a day with a host that dies every minute.

use crate::faults::{LONGEST, strike};
use crate::host::calls::AGENT;
use crate::scenario::{Outcome, Scenario};
use crate::sim_prelude::*;

/// Time after the last fault within which host and agent agree: the next call of a guest program,
/// which comes every 5 s; 30 s between two rounds of STOPPED and STARTED, 1.5 s between those two,
/// 1 s until QEMU notifies the host, or 10 s until the host reads the port by itself, and its PUT
/// of 3 s (decisions §1, P§2.3).
pub(crate) const AGREE: Micros = (5 + 30 + 2 + 10 + 3) * SECOND;
/// Duration of a lack of descriptors.
const STARVED: Micros = 15 * SECOND;
/// Time until a restarted host knows the agent: 10 s to its read, 3 s for a PUT (decisions §1,
/// P§2.3).
const BACK: Micros = 13 * SECOND;

/// Maximum time that the host's commands, one every 20 s, delay a re-exec: their results are kept
/// for up to 10 s, and the longest runs for 8 s.
const REEXEC: Micros = 60 * SECOND;
/// Time for an agent to hand over or to end: up to 5 s.
const REPLACED: Micros = 8 * SECOND;
/// Time until the next agent knows what the first one knew: one verification of up to 3 s
/// (decisions §1).
const KNOWS: Micros = 3 * SECOND + 500 * MILLI;

pub fn run_seed(seed: u64, is_loud: bool) -> Outcome {
    run_with(Dice::new(seed), is_loud)
}

/// Runs the scenario that these dice determine.
pub fn run_with(dice: Dice, is_loud: bool) -> Outcome {
    let scenario = Scenario::new(dice, is_loud);
    let dice = &scenario.sim.dice;
    scenario.net.mishaps.set(dice.pick(&[0, 0, 25, 100, 400]));
    let has_mishaps = scenario.net.mishaps.get() > 0;
    scenario.net.mishaps_inside.set(dice.pick(&[0, 0, 50, 400]));
    scenario.populate(dice.between(1, 5));
    if dice.one_in(2) {
        scenario.host.start();
    }
    scenario.start_agent(dice.pick(&[Stage::Root, Stage::Early]));
    let end = dice.between(5 * SECOND, 90 * SECOND);
    let task = scenario.clone();
    scenario.sim.spawn(scenario.sim.process(Zone::Host), async move {
        let (sim, mut now) = (&task.sim, 0);
        while now < end {
            now = (now + sim.dice.between(10 * MILLI, 10 * SECOND)).min(end);
            Timer::new(Zone::Host, now).await;
            strike(&task);
        }
    });
    scenario.sim.run(end);
    // Wait until all faults have ended, including a suspend.
    let mut quiet = end.max(scenario.sim.now(Zone::Host)) + LONGEST;
    while scenario.sim.is_frozen() && scenario.sim.failure().is_none() {
        quiet += SECOND;
        scenario.sim.run(quiet);
    }
    scenario.sim.run(quiet);
    if !scenario.host.is_up() {
        scenario.host.start();
    }
    scenario.calm();
    scenario.sim.run(quiet + AGREE);
    // The host calls a new agent again, so losing the host then would not be a fault.
    let is_same = !replace(&scenario);
    if is_same && !has_mishaps && scenario.sim.failure().is_none() {
        scenario.starve(true);
        wait(&scenario, STARVED);
        scenario.starve(false);
        wait(&scenario, SECOND);
    }
    scenario.judge()
}

fn wait(scenario: &Rc<Scenario>, length: Micros) {
    scenario.sim.run(scenario.sim.now(Zone::Host) + length);
}

/// Replaces the agent, and then perhaps the host. Neither Ready nor the host's address may be lost.
/// Returns whether it tried.
fn replace(scenario: &Rc<Scenario>) -> bool {
    let (sim, before) = (&scenario.sim, scenario.agents.number());
    let listener = scenario.net.last(AGENT);
    if sim.failure().is_some() || scenario.disagreement().is_some() {
        return true;
    }
    let kind = sim.dice.below(6);
    if kind < 3 {
        // The first agent must finish the host's command.
        scenario.host.runs();
        wait(scenario, sim.dice.between(MILLI, SECOND));
    }
    let (what, limit) = match kind {
        0 => {
            scenario.renew_agent();
            ("re-executes", REEXEC)
        }
        1 if scenario.agents.makes_room() => {
            scenario.start_second();
            ("is replaced", REPLACED)
        }
        2 => {
            scenario.stop_agent();
            scenario.start_later(Stage::Root, MILLI);
            ("ends and is back", REPLACED)
        }
        _ => return false,
    };
    let is_kept = what != "ends and is back";
    let end = sim.now(Zone::Host) + limit;
    while scenario.agents.number() == before {
        if sim.failure().is_some() || sim.now(Zone::Host) > end {
            return true;
        }
        wait(scenario, MILLI);
        if is_kept && listener.listener().is_none() {
            sim.fail(format!("an agent {what}, but the host's calls are refused meanwhile"));
        }
    }
    // A call that waits in the queue of another listener would be lost.
    if is_kept && listener != scenario.net.last(AGENT) {
        sim.fail(format!("an agent {what} without its listener"));
    }
    if what == "is replaced" && sim.dice.one_in(2) {
        // Replace the agent once more, while the first one may still wait for its commands.
        scenario.start_agent(Stage::Root);
    }
    wait(scenario, if is_kept { KNOWS } else { BACK });
    if let Some(why) = scenario.disagreement() {
        sim.fail(format!("an agent {what}: {why}"));
    }
    if sim.dice.one_in(2) {
        scenario.host.start();
        wait(scenario, BACK + SECOND);
        if let Some(why) = scenario.disagreement() {
            sim.fail(format!("an agent {what}, then the host: {why}"));
        }
    }
    true
}

/// Runs a day with a host that dies every minute. Returns the longest time until the host knew the
/// agent again.
pub fn day(seed: u64, minutes: u64, is_loud: bool) -> (Outcome, Micros) {
    let scenario = Scenario::new(Dice::new(seed), is_loud);
    let (sim, dice) = (&scenario.sim, &scenario.sim.dice);
    scenario.populate(2);
    scenario.host.start();
    scenario.start_agent(Stage::Root);
    scenario.calm();
    let mut longest = 0;
    for minute in 1..=minutes {
        let end = minute * 60 * SECOND;
        sim.run(end - dice.between(MILLI, 20 * SECOND));
        scenario.host.die();
        sim.run(end);
        if dice.one_in(10) {
            scenario.host.renew();
        }
        scenario.host.start();
        while let Some(why) = scenario.disagreement() {
            let took = sim.now(Zone::Host) - end;
            longest = longest.max(took);
            if took > BACK || sim.failure().is_some() {
                sim.fail(format!("minute {minute}: {why}"));
                return (scenario.outcome(), longest);
            }
            sim.run(sim.now(Zone::Host) + 50 * MILLI);
        }
        sim.run(end + BACK);
        scenario.oracle.host_keeps(scenario.host.keeps.get());
    }
    (scenario.judge(), longest)
}
