//! Claims, their checks, and the run of all.

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
    /// In parallel with others, because it mostly waits.
    Slow,
    /// Alone, because it changes the agent or inspects all of it.
    Alone,
}

#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its heading on the page.
    pub group: &'static str,
    pub claim: &'static str,
    /// The protocol's section.
    pub source: &'static str,
    pub pace: Pace,
    /// Limits it to Incus' agents (true) or LXD's (false).
    pub incus: Option<bool>,
    pub run: fn(&Agent) -> Claim,
}

/// A heading, and the section of the protocol that says what stands under it.
#[derive(Clone, Copy, Debug)]
pub struct Group(pub &'static str, pub &'static str);

impl Group {
    /// A quick check for all servers.
    pub const fn is(self, claim: &'static str, run: fn(&Agent) -> Claim) -> Check {
        let Self(group, source) = self;
        Check { group, claim, source, pace: Pace::Quick, incus: None, run }
    }

    /// The same heading for what another section says.
    pub const fn of(self, source: &'static str) -> Self {
        Self(self.0, source)
    }
}

impl Check {
    pub const fn slow(mut self) -> Self {
        self.pace = Pace::Slow;
        self
    }

    /// Marks a check that must run alone.
    pub const fn alone(mut self) -> Self {
        self.pace = Pace::Alone;
        self
    }

    pub const fn incus(mut self) -> Self {
        self.incus = Some(true);
        self
    }

    pub const fn lxd(mut self) -> Self {
        self.incus = Some(false);
        self
    }

    pub fn applies(&self, column: Column) -> bool {
        self.incus.is_none_or(|incus| incus == column.is_incus())
    }
}

/// Results in the checks' order; `None` if one does not apply.
pub type Seen = Vec<Option<Claim>>;

/// Runs all checks on an agent; with `MOTE_ONLY` those whose claim or group contains it.
pub fn run(agent: &Agent, checks: &[Check]) -> Seen {
    let only = std::env::var("MOTE_ONLY").unwrap_or_default();
    let wanted = |check: &Check| {
        check.applies(agent.column) && (check.claim.contains(&only) || check.group.contains(&only))
    };
    let mut seen: Seen = checks.iter().map(|_| None).collect();
    let look = |check: &Check| {
        let begun = Instant::now();
        // A terminal's wait panics at its limit. That must end only this check.
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
