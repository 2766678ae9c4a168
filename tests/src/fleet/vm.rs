//! One VM: the agent's real status machine, and the parts of QEMU between it and the daemon.

use mote_core::host_address::HostAddress;
use mote_core::status::{State, Status};

use super::clock::Micros;
use super::model::THROTTLE;

/// Size of QEMU's ring buffer, bytes (P§2.3).
const RING: usize = 16;

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

/// QEMU's ring buffer: the newest bytes that have not been read.
#[derive(Debug, Default)]
pub(super) struct Ring(Vec<u8>);

impl Ring {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.drain(..self.0.len().saturating_sub(RING));
    }

    /// Empties the ring; returns its last whole line, which is all that LXD uses.
    pub(super) fn read(&mut self) -> Option<Vec<u8>> {
        let bytes = std::mem::take(&mut self.0);
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        lines.pop();
        lines.last().map(|line| line.to_vec())
    }
}

/// QEMU's throttle of one port's events: the first is sent at once, and of those within the next
/// second only the last, at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Throttle {
    /// The next event is sent at once.
    #[default]
    Idle,
    /// An event was sent less than a second ago.
    Shut,
    /// Another event is held back since.
    Holds,
}

/// Effect of an event on the throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// An event is sent; [`Throttle::over`] is due at this time.
    Now(Micros),
    /// No event is sent now.
    Later,
}

impl Throttle {
    pub(super) fn event(&mut self, now: Micros) -> Sent {
        match *self {
            Self::Idle => {
                *self = Self::Shut;
                Sent::Now(now + THROTTLE)
            }
            Self::Shut | Self::Holds => {
                *self = Self::Holds;
                Sent::Later
            }
        }
    }

    /// The second is over: an event that was held back is sent.
    pub(super) fn over(&mut self, now: Micros) -> Sent {
        let held = std::mem::take(self) == Self::Holds;
        if held { self.event(now) } else { Sent::Later }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_newest_bytes_and_gives_the_last_whole_line_once() {
        let mut ring = Ring::default();
        ring.write(b"STARTED\nCONNECTED\n");
        assert_eq!(ring.0, b"ARTED\nCONNECTED\n");
        assert_eq!(ring.read().as_deref(), Some(&b"CONNECTED"[..]));
        assert_eq!(ring.read(), None);
        ring.write(b"STARTED\nhalf");
        assert_eq!(ring.read().as_deref(), Some(&b"STARTED"[..]));
    }

    #[test]
    fn an_event_goes_at_once_and_those_of_the_next_second_as_one_at_its_end() {
        let mut port = Throttle::default();
        assert_eq!(port.event(5), Sent::Now(5 + THROTTLE));
        assert_eq!([port.event(6), port.event(7)], [Sent::Later; 2]);
        assert_eq!(port.over(5 + THROTTLE), Sent::Now(5 + 2 * THROTTLE));
        assert_eq!(port.over(5 + 2 * THROTTLE), Sent::Later);
        assert_eq!(port.event(9 + 2 * THROTTLE), Sent::Now(9 + 3 * THROTTLE));
    }
}
