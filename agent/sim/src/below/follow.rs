//! What the host adds to the VM: nothing.

use std::rc::Rc;

use super::super::agent::Agent;

pub(crate) async fn run(_agent: Rc<Agent>) {}
