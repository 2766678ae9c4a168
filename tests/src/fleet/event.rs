//! What happens in the simulation, and what takes time of the host.

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The agent starts.
    Boot(usize),
    /// It has become CONNECTED, for a beginning without one.
    Settle(usize),
    /// The agent's deadline, unless it was put off.
    Wake(usize, u32),
    /// What the agent writes is with QEMU, the port is closed again.
    Written { vm: usize, line: &'static [u8], kick: bool },
    /// A second after an event of that port, if one was held back.
    Throttle(usize, usize),
    /// The daemon has heard no event for long, unless it has.
    Poll(usize, u32),
    /// A core has done this.
    Done(Work),
    /// The other side of a call has its turn.
    Turn(usize),
    /// A call has taken too long.
    Late(usize),
    /// A program in the guest asks the host something.
    Asks(usize),
    /// The daemon dies.
    Down,
    /// It is back.
    Up,
    /// Calls to it fail.
    Fails,
    /// They no longer do.
    Works,
}

/// What takes CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// The daemon takes up a VM.
    TakeUp { vm: usize, daemon: u32 },
    /// It reads the ring.
    Read { vm: usize, daemon: u32 },
    /// It reads a line from the port.
    Hear { vm: usize, daemon: u32, line: &'static [u8] },
    /// A part of a call.
    Step(usize),
}
