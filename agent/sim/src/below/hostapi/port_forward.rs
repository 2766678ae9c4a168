//! No connections to ports in the guest.

use std::rc::Rc;

use mote_core::http::head::Request;

use crate::agent::Agent;
use crate::agent::envelope::error;
use crate::net::serve::Answer;

pub(crate) async fn answer(_: &Rc<Agent>, _: &Request<'_>, _: &[u8]) -> Answer {
    error(501, "not simulated")
}
