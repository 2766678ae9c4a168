//! No sessions.

use std::rc::Rc;

use mote_core::http::head::Request;

use crate::agent::Agent;
use crate::agent::envelope::error;
use crate::net::serve::Answer;

pub(crate) fn answer(_: &Rc<Agent>, _: &Request<'_>) -> Answer {
    error(501, "not simulated")
}
