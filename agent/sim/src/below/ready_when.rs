//! What the guest asks to be Ready by itself: nothing.

use std::rc::Rc;

use crate::agent::Agent;

pub(crate) async fn run(_agent: Rc<Agent>) {}
