//! No hot-plugged devices.

use std::rc::Rc;

use crate::agent::Agent;

pub(crate) async fn run(_agent: Rc<Agent>) {}
