//! The scenarios of `docs/fleet.md` and the figures taken from each simulation.

use super::clock::{Micros, SECOND};
use super::load::{Slice, peak, per_second};
use super::model::{Channel, Plan, Start, Trouble};
use super::run;

/// A scenario for a fleet.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Title in the tables.
    pub name: &'static str,
    start: Start,
    trouble: Trouble,
}

const LONG_AGO: Start = Start::Settled(10 * SECOND);

impl Scenario {
    /// All agents CONNECTED, no failure.
    pub const QUIET: Self =
        Self { name: "nothing happens", start: LONG_AGO, trouble: Trouble::None };
    /// Agents that all announce themselves at the same moments, as after the machine was suspended.
    pub const IN_STEP: Self =
        Self { name: "all in step", start: Start::Settled(0), trouble: Trouble::None };
    /// A restart shorter than the interval of silent announcements.
    pub const BLINK: Self = Self {
        name: "the host is down for 0.5 s",
        start: LONG_AGO,
        trouble: Trouble::Restart(SECOND / 2),
    };
    /// An ordinary restart.
    pub const RESTART: Self = Self {
        name: "the host is down for 2 s",
        start: LONG_AGO,
        trouble: Trouble::Restart(2 * SECOND),
    };
    /// A restart as long as an upgrade.
    pub const UPGRADE: Self = Self {
        name: "the host is down for 30 s",
        start: LONG_AGO,
        trouble: Trouble::Restart(30 * SECOND),
    };
    /// The host fails every call, but reads and calls itself.
    pub const FAILING: Self = Self {
        name: "every call to the host fails for 30 s",
        start: LONG_AGO,
        trouble: Trouble::Failing(30 * SECOND),
    };
    /// All VMs start at one moment, the worst case.
    pub const BOOT: Self = Self {
        name: "all VMs start at the same moment",
        start: Start::Boot(0),
        trouble: Trouble::None,
    };
    /// All VMs start as fast as a script can start them.
    pub const SPREAD: Self = Self {
        name: "all VMs start within 10 s",
        start: Start::Boot(10 * SECOND),
        trouble: Trouble::None,
    };
    /// All scenarios of the tables.
    pub const ALL: [Self; 7] = [
        Self::BLINK,
        Self::RESTART,
        Self::UPGRADE,
        Self::FAILING,
        Self::BOOT,
        Self::SPREAD,
        Self::QUIET,
    ];

    /// The plan of the scenario for this number of agents and channel.
    #[must_use]
    pub fn plan(self, agents: u32, channel: Channel) -> Plan {
        let watch = 100 * SECOND;
        Plan { channel, watch, ..Plan::new(agents, self.start, self.trouble) }
    }

    /// True if agents have to become CONNECTED in it.
    #[must_use]
    pub fn comes_back(self) -> bool {
        matches!(self.start, Start::Boot(_)) || self.trouble != Trouble::None
    }
}

/// Figures of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Times until 50, 99 and 100 % were CONNECTED, from the moment from which the host worked.
    pub back: [Option<Micros>; 3],
    /// Reads of rings or of lines per second: mean, and largest in a tenth of a second.
    pub reads: (f64, u64),
    /// Largest number of reads per second in the last 40 s.
    pub late_reads: u64,
    /// Cores in use: mean, largest.
    pub cores: (f64, f64),
    /// Largest number of calls in progress.
    pub calls: u64,
    /// Number of failed calls.
    pub failed: u64,
    /// Agents that were CONNECTED at the end.
    pub at_end: u32,
}

/// Runs the simulation of a plan.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn figures(plan: &Plan) -> Figures {
    let load = run(plan);
    let slices = load.between(plan.begin(), Plan::BEGIN + plan.watch);
    let back = [50, 99, 100].map(|share| {
        let count = (u64::from(plan.agents) * share).div_ceil(100);
        load.reached(plan.well(), u32::try_from(count).unwrap_or(u32::MAX))
    });
    let cpu = |slice: &Slice| slice.cpu;
    let end = Plan::BEGIN + plan.watch;
    let late = load.between(end.saturating_sub(40 * SECOND), end);
    Figures {
        back,
        reads: (per_second(slices, |slice| slice.reads), peak(slices, |slice| slice.reads)),
        late_reads: peak(late, |slice| slice.reads),
        cores: (per_second(slices, cpu) / SECOND as f64, peak(slices, cpu) as f64 / SECOND as f64),
        calls: slices.iter().map(|slice| slice.calls).max().unwrap_or_default(),
        failed: slices.iter().map(|slice| slice.failed).sum(),
        at_end: slices.last().map_or(0, |slice| slice.connected),
    }
}
