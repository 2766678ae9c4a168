//! The VM runs again: reported by a signal of the simulated kernel.

use std::rc::Rc;

use crate::agent::Agent;
use crate::below::here::here;

pub(crate) async fn run(agent: Rc<Agent>) {
    let returned = &here().kernel.returned;
    loop {
        returned.after(returned.seen()).await;
        agent.restart_link();
    }
}
