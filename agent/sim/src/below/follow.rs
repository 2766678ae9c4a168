//! What the host adds to the VM: nothing. That it runs again is told by a signal.

use std::rc::Rc;

use crate::agent::Agent;

pub(crate) async fn run(_agent: Rc<Agent>) {}

pub(crate) mod restore {
    use std::rc::Rc;

    use crate::agent::Agent;
    use crate::below::here::here;

    pub(crate) async fn run(agent: Rc<Agent>) {
        let returned = &here().kernel.returned;
        loop {
            returned.after(returned.seen()).await;
            agent.begin_anew();
        }
    }
}
