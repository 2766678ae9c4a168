//! One VM: the agent's real status machine, and the parts of QEMU between it and the daemon.

use mote_core::host_address::HostAddress;
use mote_core::status::{State, Status};
use mote_qemu::{Ring, Throttle};

/// A VM, with the daemon's record of it, which is reset when the daemon restarts.
#[derive(Debug)]
pub(super) struct Vm {
    /// The agent, once it runs.
    pub(super) status: Option<Status>,
    /// Number of the current wake-up; events of earlier ones are ignored.
    pub(super) wake: u32,
    /// The address of the host to which the agent has a TLS ticket.
    pub(super) ticket: Option<HostAddress>,
    pub(super) ring: Ring,
    /// Event throttles of the status port and of the legacy port.
    pub(super) ports: [Throttle; 2],
    /// Counted as CONNECTED to the current daemon.
    pub(super) good: bool,
    pub(super) seen: Seen,
}

/// The daemon's record of a VM.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) knows: Knows,
    /// Number of the current poll; events of earlier ones are ignored.
    pub(super) poll: u32,
}

/// The daemon's knowledge of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    Nothing,
    /// It has a monitor connection, or has opened the port.
    Vm,
    /// It has read STARTED; further ones are ignored.
    Agent,
}

impl Vm {
    pub(super) fn new() -> Self {
        Self {
            status: None,
            wake: 0,
            ticket: None,
            ring: Ring::default(),
            ports: [Throttle::default(), Throttle::default()],
            good: false,
            seen: Seen { knows: Knows::Nothing, poll: 0 },
        }
    }

    /// Whether the agent is CONNECTED to the host there.
    pub(super) fn is_connected_to(&self, host: Option<HostAddress>) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.state() == State::Connected && host.is_some() && status.address() == host
        })
    }
}
