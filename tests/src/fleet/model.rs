//! Parameters of a simulation: speed of the machine, failures of the host, intervals of the agents.

use mote_core::status::Intervals;

use super::clock::{MILLI, Micros, SECOND};

/// The machine. The daemon, QEMU's main loops and the guests' TLS share all cores. Times are in µs.
#[derive(Clone, Debug)]
pub struct Model {
    /// Number of cores.
    pub cores: usize,
    /// CPU time of one side of a full TLS handshake with P-384 certificates on both sides.
    pub full: Micros,
    /// CPU time of one side of a resumed handshake.
    pub resumed: Micros,
    /// CPU time of a QMP event and its `ringbuf-read`, or of reading and answering a line.
    pub read: Micros,
    /// CPU time to register one VM at the daemon's start (LXD's `devicesRegister`, one after the
    /// other): QMP and loading of data.
    pub register: Micros,
    /// Delay between the steps of the two sides of a call.
    pub latency: Micros,
    /// Delay from the opening of the port to the line in the ring.
    pub write: Micros,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            cores: 16,
            full: 2_500,
            resumed: 400,
            read: 400,
            register: MILLI,
            latency: 200,
            write: 300,
        }
    }
}

/// Time limit of the daemon's PUT, and of a call to the daemon (P§3.2, P§3.5).
pub(super) const PATIENCE: Micros = 3 * SECOND;
/// Time without an event after which the daemon reads the ring (P§2.3).
pub(super) const POLL: Micros = mote_qemu::LOOK * SECOND;
/// Channel by which host and agent announce themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// QEMU's ring and `PUT /1.0`, as with every LXD and Incus.
    Ring,
    /// A bidirectional port with `CONNECT` lines.
    Line,
}

/// Initial state of the agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All start within this time, with `agent.conf`.
    Boot(Micros),
    /// All have been CONNECTED for long, since moments that differ by up to this.
    Settled(Micros),
}

/// Failure of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No failure.
    None,
    /// The daemon is down for this time, and returns with another port.
    Restart(Micros),
    /// Every call to the daemon fails for this time, though it reads and calls itself.
    Failing(Micros),
}

/// One simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of agents.
    pub agents: u32,
    /// Seed of the pseudo-random numbers.
    pub seed: u64,
    /// Channel between host and agents.
    pub channel: Channel,
    /// Intervals of the agents' announcements.
    pub intervals: Intervals,
    /// Largest jitter, in 256ths; 0 is none. Each agent's intervals are shorter by its own random
    /// part, and each of its verifications is delayed by up to this part of a second.
    pub jitter: u64,
    /// Initial state of the agents.
    pub start: Start,
    /// Failure of the host, from [`Plan::BEGIN`] on.
    pub trouble: Trouble,
    /// Mean interval between two requests of the programs in each guest.
    pub asks: Micros,
    /// Length of the simulation after [`Plan::BEGIN`].
    pub watch: Micros,
    /// The machine.
    pub model: Model,
}

impl Plan {
    /// Time at which the host's failure begins.
    pub const BEGIN: Micros = 20 * SECOND;

    /// A plan with default values for everything else.
    #[must_use]
    pub fn new(agents: u32, start: Start, trouble: Trouble) -> Self {
        Self {
            agents,
            seed: 1,
            channel: Channel::Ring,
            intervals: Intervals::default(),
            jitter: 0,
            start,
            trouble,
            asks: 60 * SECOND,
            watch: 60 * SECOND,
            model: Model::default(),
        }
    }

    /// Start of the time to evaluate.
    #[must_use]
    pub fn begin(&self) -> Micros {
        match self.start {
            Start::Boot(_) => 0,
            Start::Settled(_) => Self::BEGIN,
        }
    }

    /// Time from which the host works, after its failure if there is one.
    #[must_use]
    pub fn well(&self) -> Micros {
        match (self.start, self.trouble) {
            (_, Trouble::None) => self.begin(),
            (_, Trouble::Restart(time) | Trouble::Failing(time)) => Self::BEGIN + time,
        }
    }
}
