//! Nothing to watch: no hot-plugged devices, no `ready-when` conditions.

use std::rc::Rc;

use crate::agent::Agent;

pub(crate) async fn run(_agent: Rc<Agent>) {}
