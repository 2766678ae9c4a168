//! What the host adds to the VM: nothing.

use std::rc::Rc;

use crate::agent::Agent;

pub(crate) async fn run(_agent: Rc<Agent>) {}
