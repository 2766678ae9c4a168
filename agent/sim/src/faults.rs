//! What happens to a history from outside. Each fault ends by itself.

use std::rc::Rc;

use crate::below::here::here;
use crate::host::caller::AGENT;
use crate::host::port::Backend;
use crate::machine::executor::{MILLI, Micros, SECOND, Zone};
use crate::machine::kernel::Stage;
use crate::machine::wait::sleep;
use crate::world::World;

/// Longest fault but a suspend.
pub(crate) const LONGEST: Micros = 12 * SECOND;
/// What is written to a line that does not only belong to the host.
const NOISE: [&str; 5] =
    ["CONNECT 2:9999\n", "CONNECT 4294967295:1\n", "\n\0\u{7f}STARTED\nCONN", "CONNECT \n", "\n"];

/// One fault, by chance.
pub(crate) fn strike(world: &Rc<World>) {
    let (sim, dice) = (&world.sim, &world.sim.dice);
    let length = dice.pick(&[50 * MILLI, SECOND, LONGEST]);
    let length = dice.between(MILLI, length);
    match dice.below(17) {
        0 | 1 => {
            world.host.die();
            if dice.one_in(4) {
                world.host.renew();
            }
            later(world, Zone::Host, length, |world| world.host.start());
        }
        2 => world.host.renew(),
        3 => {
            world.host.hang(true);
            later(world, Zone::Host, length, |world| world.host.hang(false));
        }
        4 => {
            world.host.refuses.set(true);
            later(world, Zone::Host, length, |world| world.host.refuses.set(false));
        }
        5 => {
            world.kill_agent();
            later(world, Zone::Guest, length, |world| world.start_agent(Stage::Root));
        }
        6 => {
            world.stop_agent();
            later(world, Zone::Guest, length, |world| world.start_agent(Stage::Root));
        }
        7 => {
            world.qemu.plug(false);
            later(world, Zone::Host, length, |world| world.qemu.plug(true));
        }
        8 => {
            world.oracle.excuse();
            sim.freeze(dice.between(MILLI, dice.pick(&[SECOND, 60 * SECOND])), dice.one_in(2));
            // The agent takes it for a restore.
            if dice.one_in(2) {
                here().kernel.returned.raise();
            }
        }
        9 => {
            world.oracle.excuse();
            sim.jump(dice.between(MILLI, dice.pick(&[SECOND, 60 * SECOND, 3600 * SECOND])));
        }
        10 if world.qemu.backend == Backend::Line => world.qemu.tell(dice.pick(&NOISE)),
        10 => {}
        11 => world.crowd(length),
        12 => world.renew_agent(),
        13 => world.start_second(),
        14 => begin_early(world, length),
        15 => world.change_policy(dice.one_in(2)),
        _ => here().kernel.has_left.set(true),
    }
}

/// Starts an agent before what it needs is there.
fn begin_early(world: &Rc<World>, length: Micros) {
    let dice = &world.sim.dice;
    world.kill_agent();
    let is_taken = dice.one_in(4);
    world.lack(!is_taken && dice.one_in(2), !is_taken && dice.one_in(2));
    // Another server's agent has the port.
    let other = is_taken.then(|| world.net.listen(AGENT));
    here().kernel.other.replace(other);
    later(world, Zone::Guest, length, |world| {
        if here().kernel.other.take().is_some() {
            // No device tells of it.
            world.agents.whole.set(world.sim.awake());
        } else {
            world.lack(false, false);
        }
    });
    let stage = dice.pick(&[Stage::Root, Stage::Early]);
    world.start_agent(stage);
}

/// Mends it when so much time has passed there.
fn later(world: &Rc<World>, zone: Zone, length: Micros, mend: impl Fn(&Rc<World>) + 'static) {
    let task = world.clone();
    world.sim.spawn(world.sim.process(zone), async move {
        sleep(&task.sim, zone, length).await;
        mend(&task);
    });
}

/// Host and agent are up, whatever happened.
pub(crate) fn mend(world: &Rc<World>) {
    if !world.host.is_up() {
        world.host.start();
    }
}
