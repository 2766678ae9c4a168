//! A mount, by a process that takes its time.

use std::rc::Rc;

use mote_core::json::Value;

use crate::agent::Agent;
use crate::below::here::here;
use crate::machine::executor::{MILLI, Zone};
use crate::machine::wait::sleep;

pub(crate) async fn event(agent: &Rc<Agent>, _: Value<'_>) {
    let _one = agent.device_event_lock.clone().take().await;
    let here = here();
    sleep(&here.sim, Zone::Guest, here.sim.dice.between(MILLI, 500 * MILLI)).await;
}

pub(crate) async fn at_start(_: Rc<Agent>, _: Vec<u8>) {}
