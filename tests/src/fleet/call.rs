//! Calls between the daemon and the agents: what each side has to do, by turns.

use mote_agent::status::Address;

use super::clock::Micros;
use super::model::Model;

/// Who calls whom, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The daemon: `GET /1.0`, then `PUT /1.0`. LXD does both.
    Advertise,
    /// The agent: is the host there? With the number that the status machine wants back, and the
    /// call that is answered with the result.
    Verify { attempt: u32, address: Address, answers: Option<usize> },
    /// The agent, for a program in the guest.
    Ask { address: Address },
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) vm: usize,
    /// Turns that were taken.
    pub(super) step: usize,
    /// What a turn costs.
    pub(super) cost: Micros,
    pub(super) is_over: bool,
}

impl Call {
    /// Whether somebody has something to compute: each handshake costs each side once.
    pub(super) fn goes_on(&self) -> bool {
        let handshakes = match self.kind {
            Kind::Advertise => 2,
            Kind::Verify { .. } | Kind::Ask { .. } => 1,
        };
        self.step < 2 * handshakes
    }
}

impl Model {
    /// What one side of a handshake costs.
    pub(super) fn handshake(&self, has_ticket: bool) -> Micros {
        if has_ticket { self.resumed } else { self.full }
    }
}
