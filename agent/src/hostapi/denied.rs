//! The answer to what the guest's policy does not allow.

use std::fmt::Display;

use crate::agent::Agent;
use crate::hostapi::envelope::error;
use crate::net::serve::Answer;

/// 403 with the reason, which the host shows to its user and the log to the guest's.
#[inline(never)] // its size
pub(crate) fn denied(agent: &Agent, what: &dyn Display) -> Answer {
    let why = format!("The guest's policy does not allow {what}");
    agent.refused(&why);
    error(403, &why)
}
