//! What a simulation is told: how fast the machine is, what happens to the host, how the agents are
//! set. Each number with where it is from.

use mote_agent::status::Intervals;

use super::clock::{MILLI, Micros, SECOND};

/// The machine. All CPU time is taken from one pool: the host's daemon, QEMU's main loops and the
/// guests' TLS run on the same cores.
#[derive(Clone, Debug)]
pub struct Model {
    /// Cores.
    pub cores: usize,
    /// One side of a full TLS handshake with P-384 certificates on both sides.
    pub full: Micros,
    /// One side of a resumed one.
    pub resumed: Micros,
    /// A QMP event and the `ringbuf-read` it causes, or a line read from the port and answered.
    pub read: Micros,
    /// A daemon that starts takes up its VMs one after another (LXD's `devicesRegister`): QMP, and
    /// what it has to load.
    pub register: Micros,
    /// Between two things that sides do by turns.
    pub latency: Micros,
    /// Between the opening of the port and the line being in the ring.
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

/// The daemon gives a PUT so long, and a caller so long to say what it wants (P§3.2, P§3.5).
pub(super) const PATIENCE: Micros = 3 * SECOND;
/// Without an event it reads the ring after this (P§2.3).
pub(super) const POLL: Micros = 10 * SECOND;
/// QEMU sends `VSERPORT_CHANGE` of one port once in this time (P§2.2).
pub(super) const THROTTLE: Micros = SECOND;
/// How the host and the agent tell each other that they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// QEMU's ring and `PUT /1.0`, as every LXD and Incus.
    Ring,
    /// A port that carries both ways, and `CONNECT`.
    Line,
}

/// How the agents begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All started within this time, with `agent.conf`.
    Boot(Micros),
    /// They became CONNECTED long ago, at moments that differ by up to this.
    Settled(Micros),
}

/// What happens to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// The daemon is away for so long, and has another port then.
    Restart(Micros),
    /// Every call to it fails for so long, though it reads and calls itself.
    Failing(Micros),
}

/// One simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many agents.
    pub agents: u32,
    /// Of all that looks random.
    pub seed: u64,
    /// How they are told.
    pub channel: Channel,
    /// How often they speak.
    pub intervals: Intervals,
    /// None is 0. Up to so many 256th an agent's intervals are shorter than said, each agent's by
    /// its own part, and its own calls begin later by up to as much of a second.
    pub jitter: u64,
    /// How they begin.
    pub start: Start,
    /// What happens at [`Plan::BEGIN`].
    pub trouble: Trouble,
    /// Programs in each guest ask the host something this often.
    pub asks: Micros,
    /// For how long it is watched, from [`Plan::BEGIN`].
    pub watch: Micros,
    /// The machine.
    pub model: Model,
}

impl Plan {
    /// When trouble begins.
    pub const BEGIN: Micros = 20 * SECOND;

    /// So many agents, all else as usual.
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

    /// When there begins to be something to see.
    #[must_use]
    pub fn begin(&self) -> Micros {
        match self.start {
            Start::Boot(_) => 0,
            Start::Settled(_) => Self::BEGIN,
        }
    }

    /// When the host is as it should be, for the first or the second time.
    #[must_use]
    pub fn well(&self) -> Micros {
        match (self.start, self.trouble) {
            (_, Trouble::None) => self.begin(),
            (_, Trouble::Restart(time) | Trouble::Failing(time)) => Self::BEGIN + time,
        }
    }
}
