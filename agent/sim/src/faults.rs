//! Faults that a scenario injects. Each ends by itself.

use crate::host::calls::AGENT;
use crate::host::port::Backend;
use crate::scenario::Scenario;
use crate::sim_prelude::*;

/// Longest fault except a suspend.
pub(crate) const LONGEST: Micros = 12 * SECOND;
/// Noise on a status port that other programs can write to.
const NOISE: [&str; 5] =
    ["CONNECT 2:9999\n", "CONNECT 4294967295:1\n", "\n\0\u{7f}STARTED\nCONN", "CONNECT \n", "\n"];

pub(crate) fn strike(scenario: &Rc<Scenario>) {
    let (sim, dice) = (&scenario.sim, &scenario.sim.dice);
    let length = dice.pick(&[50 * MILLI, SECOND, LONGEST]);
    let length = dice.between(MILLI, length);
    match dice.below(17) {
        0 | 1 => {
            scenario.host.die();
            if dice.one_in(4) {
                scenario.host.renew();
            }
            later(scenario, Zone::Host, length, |scenario| scenario.host.start());
        }
        2 => scenario.host.renew(),
        3 => {
            scenario.host.hang(true);
            later(scenario, Zone::Host, length, |scenario| scenario.host.hang(false));
        }
        4 => {
            scenario.host.refuses.set(true);
            later(scenario, Zone::Host, length, |scenario| scenario.host.refuses.set(false));
        }
        5 => {
            scenario.kill_agent();
            later(scenario, Zone::Guest, length, |scenario| scenario.start_agent(Stage::Root));
        }
        6 => {
            scenario.stop_agent();
            later(scenario, Zone::Guest, length, |scenario| scenario.start_agent(Stage::Root));
        }
        7 => {
            scenario.qemu.plug(false);
            later(scenario, Zone::Host, length, |scenario| scenario.qemu.plug(true));
        }
        8 => {
            scenario.oracle.excuse();
            sim.freeze(dice.between(MILLI, dice.pick(&[SECOND, 60 * SECOND])), dice.one_in(2));
            // Sometimes the agent takes the suspend for a restore.
            if dice.one_in(2) {
                here().kernel.returned.raise();
            }
        }
        9 => {
            scenario.oracle.excuse();
            sim.jump(dice.between(MILLI, dice.pick(&[SECOND, 60 * SECOND, 3600 * SECOND])));
        }
        10 if scenario.qemu.backend == Backend::Line => scenario.qemu.send(dice.pick(&NOISE)),
        10 => {}
        11 => scenario.crowd(length),
        12 => scenario.renew_agent(),
        13 => scenario.start_second(),
        14 => begin_early(scenario, length),
        15 => scenario.change_policy(dice.one_in(2)),
        _ => here().kernel.has_left.set(true),
    }
}

fn begin_early(scenario: &Rc<Scenario>, length: Micros) {
    let dice = &scenario.sim.dice;
    scenario.kill_agent();
    let is_taken = dice.one_in(4);
    scenario.lack(!is_taken && dice.one_in(2), !is_taken && dice.one_in(2));
    // Another server's agent has the port.
    let other = is_taken.then(|| scenario.net.listen(AGENT));
    here().kernel.other.replace(other);
    later(scenario, Zone::Guest, length, |scenario| {
        if here().kernel.other.take().is_some() {
            // No device event reports this.
            scenario.agents.whole.set(scenario.sim.awake());
        } else {
            scenario.lack(false, false);
        }
    });
    let stage = dice.pick(&[Stage::Root, Stage::Early]);
    scenario.start_agent(stage);
}

fn later(
    scenario: &Rc<Scenario>,
    zone: Zone,
    length: Micros,
    mend: impl Fn(&Rc<Scenario>) + 'static,
) {
    let task = scenario.clone();
    scenario.sim.spawn(scenario.sim.process(zone), async move {
        sleep(&task.sim, zone, length).await;
        mend(&task);
    });
}
