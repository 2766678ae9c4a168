//! Calls between the daemon and the agents: the CPU work of each side, which alternates.

use mote_core::host_address::HostAddress;

use super::clock::Micros;
use super::model::Model;

/// Caller and purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// From the daemon: `GET /1.0`, then `PUT /1.0`, as LXD does.
    Advertise,
    /// The agent: is the host there? With the number that the status machine wants back, and the
    /// call that is answered with the result.
    Verify { attempt: u32, address: HostAddress, answers: Option<usize> },
    /// The agent, for a program in the guest.
    Ask { address: HostAddress },
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) vm: usize,
    /// Number of steps done.
    pub(super) step: usize,
    /// CPU time of one step.
    pub(super) cost: Micros,
    pub(super) is_over: bool,
}

impl Call {
    /// True while steps are left: each handshake has one per side.
    pub(super) fn goes_on(&self) -> bool {
        let handshakes = match self.kind {
            Kind::Advertise => 2,
            Kind::Verify { .. } | Kind::Ask { .. } => 1,
        };
        self.step < 2 * handshakes
    }
}

impl Model {
    /// CPU time of one side of a handshake.
    pub(super) fn handshake(&self, has_ticket: bool) -> Micros {
        if has_ticket { self.resumed } else { self.full }
    }
}
