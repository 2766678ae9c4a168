//! Resume, reported by a signal of the simulated kernel.

use smol::future::FutureExt;

use crate::sim_prelude::*;

pub(crate) async fn run(agent: Rc<Agent>) {
    let returned = &here().kernel.returned;
    agent.watches_resume.set(true);
    loop {
        let (seen, woken) = (returned.seen(), agent.woken.seen());
        returned.after(seen).or(agent.woken.after(woken)).await;
        if returned.seen() != seen {
            agent.restart_link();
        }
        agent.resume_handled.raise();
    }
}
