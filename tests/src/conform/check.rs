//! Claims, how each is checked, and running them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Instant;

use super::agent::Agent;
use super::claim::{Claim, Miss};
use crate::column::Column;

/// When a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Quick,
    /// Beside the others, because it mostly waits.
    Slow,
    /// When nothing else runs, because it changes the agent or looks at all of it.
    Alone,
}

/// A claim and how it is checked.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The heading it stands under.
    pub group: &'static str,
    pub claim: &'static str,
    /// Where the protocol says so.
    pub source: &'static str,
    pub pace: Pace,
    /// The servers whose agents have it; none is all of them.
    pub incus: Option<bool>,
    pub run: fn(&Agent) -> Claim,
}

impl Check {
    /// A quick one for all servers.
    pub const fn new(
        group: &'static str,
        source: &'static str,
        claim: &'static str,
        run: fn(&Agent) -> Claim,
    ) -> Self {
        Self { group, claim, source, pace: Pace::Quick, incus: None, run }
    }

    pub const fn slow(mut self) -> Self {
        self.pace = Pace::Slow;
        self
    }

    /// It must be alone.
    pub const fn alone(mut self) -> Self {
        self.pace = Pace::Alone;
        self
    }

    /// Only Incus has it.
    pub const fn incus(mut self) -> Self {
        self.incus = Some(true);
        self
    }

    /// Only LXD has it.
    pub const fn lxd(mut self) -> Self {
        self.incus = Some(false);
        self
    }

    /// Whether the agents of this column's server have it.
    pub fn applies(&self, column: Column) -> bool {
        self.incus.is_none_or(|incus| incus == column.is_incus())
    }
}

/// What was seen: check by check, nothing where one does not apply.
pub type Seen = Vec<Option<Claim>>;

/// Runs all checks on an agent. `MOTE_ONLY` runs those whose claim or group has it in it.
pub fn run(agent: &Agent, checks: &[Check]) -> Seen {
    let only = std::env::var("MOTE_ONLY").unwrap_or_default();
    let wanted = |check: &Check| {
        check.applies(agent.column) && (check.claim.contains(&only) || check.group.contains(&only))
    };
    let mut seen: Seen = checks.iter().map(|_| None).collect();
    let look = |check: &Check| {
        let begun = Instant::now();
        // What waits for a terminal panics when nothing comes: that is one row's end, not all rows'.
        let once = || {
            let ended = catch_unwind(AssertUnwindSafe(|| (check.run)(agent)));
            ended.unwrap_or_else(|panic| {
                let text = panic.downcast::<String>().map_or_else(|_| String::new(), |text| *text);
                Err(Miss::No(format!("a panic, printed above: {text}")))
            })
        };
        let claim = once();
        let took = begun.elapsed();
        if std::env::var_os("MOTE_TIMES").is_some() {
            println!("{:6.2} s  {} {claim:?}", took.as_secs_f64(), check.claim);
        }
        claim
    };
    let pick = |pace: Pace| {
        checks.iter().enumerate().filter(move |(_, check)| check.pace == pace && wanted(check))
    };
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for (index, check) in pick(Pace::Slow) {
            let send = send.clone();
            scope.spawn(move || send.send((index, look(check))));
        }
        drop(send);
        for (index, check) in pick(Pace::Quick) {
            seen[index] = Some(look(check));
        }
        for (index, claim) in receive {
            seen[index] = Some(claim);
        }
    });
    for (index, check) in pick(Pace::Alone) {
        seen[index] = Some(look(check));
    }
    seen
}
