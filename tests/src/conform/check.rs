//! Claims, their checks, and the run of all on an agent.

use std::fmt::Display;

use mote_checks::{Reason, Table, Verdict, reasons};

use super::client::Agent;
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The feature is missing or ends in an error.
    No(String),
    Differs(String),
}

impl Miss {
    /// Parts of messages about something that was too slow. The last two belong to the panic of
    /// `wait`, and to a command that ended before the agent accepted all of its sockets.
    const LATE: [&str; 10] = [
        "in time",
        "not within",
        "no end within",
        "took longer",
        "takes longer",
        "too long",
        "timed out",
        "no longer answers",
        "on an idle machine",
        "Only running operations can be connected",
    ];

    pub fn is_late(&self) -> bool {
        let (Self::No(why) | Self::Differs(why)) = self;
        Self::LATE.iter().any(|late| why.contains(late))
    }
}

impl From<String> for Miss {
    fn from(text: String) -> Self {
        Self::No(text)
    }
}

impl From<&str> for Miss {
    fn from(text: &str) -> Self {
        Self::No(text.into())
    }
}

pub type Claim = Result<(), Miss>;

pub fn same<T: PartialEq<U> + Display, U: Display>(what: &str, seen: T, wanted: U) -> Claim {
    if seen == wanted {
        Ok(())
    } else {
        Err(Miss::Differs(format!("{what} is `{seen}`, not `{wanted}`")))
    }
}

/// Requires equality of values with several parts, which are shown as in code.
pub fn equal<T: PartialEq<U> + Debug, U: Debug>(what: &str, seen: T, wanted: U) -> Claim {
    let differs = || format!("{what} is {seen:?}, not {wanted:?}");
    if seen == wanted { Ok(()) } else { Err(Miss::Differs(differs())) }
}

pub fn hold(what: impl Into<String>, holds: bool) -> Claim {
    if holds { Ok(()) } else { Err(Miss::Differs(what.into())) }
}

/// Requires these members of an object.
pub fn has(seen: &Value, wanted: Value) -> Claim {
    let wanted = wanted.as_object().expect("an object");
    wanted.iter().try_for_each(|(name, wanted)| same(name, &seen[name], wanted))
}

pub const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Quick,
    /// Runs in parallel with others, because it mostly waits.
    Slow,
    /// Runs alone, because it changes the agent or inspects all of it.
    Alone,
}

#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub group: Group,
    pub claim: &'static str,
    pub run: fn(&Agent) -> Claim,
}

/// A heading on the page, and what applies to the claims under it.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub heading: &'static str,
    /// The protocol's section.
    pub source: &'static str,
    pub pace: Pace,
    /// Whether the group is limited to Incus' agents (true) or LXD's (false).
    pub incus: Option<bool>,
}

impl Group {
    pub const fn new(heading: &'static str, source: &'static str) -> Self {
        Self { heading, source, pace: Pace::Quick, incus: None }
    }

    pub const fn of(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    pub const fn slow(self) -> Self {
        Self { pace: Pace::Slow, ..self }
    }

    pub const fn alone(self) -> Self {
        Self { pace: Pace::Alone, ..self }
    }

    pub const fn incus(self) -> Self {
        Self { incus: Some(true), ..self }
    }

    pub const fn lxd(self) -> Self {
        Self { incus: Some(false), ..self }
    }

    pub const fn is(self, claim: &'static str, run: fn(&Agent) -> Claim) -> Check {
        Check { group: self, claim, run }
    }
}

impl Check {
    pub fn applies(&self, column: Column) -> bool {
        self.group.incus.is_none_or(|incus| incus == column.is_incus())
    }
}

/// Results in the checks' order; `None` if one does not apply.
pub type Seen = Vec<Option<Claim>>;

pub fn look(column: Column, checks: &[Check]) -> Seen {
    let begun = Instant::now();
    let odd = format!("user.odd={}", super::checks::ODD);
    let config = [
        "user.foo=bar",
        "environment.FROM_HOST=yes",
        &odd,
        "cloud-init.user-data=#cloud-config\n",
        "mote.bearer=secret",
        "security.devlxd.images=true",
        "security.devlxd.management.volumes=true",
    ];
    let mut world = World::boot(column, &Spec { memory: 384, ..world::spec(column) }, &config);
    world.connected(BOOT);
    println!("{}: connected after {:.1} s", column.title(), begun.elapsed().as_secs_f64());
    // The scratch directory must be dropped last.
    let World { scratch: _last, host, vm, .. } = world;
    let agent = Agent::new(column, host, vm);
    let seen = run(&agent, checks);
    println!("{}: done after {:.1} s", column.title(), begun.elapsed().as_secs_f64());
    seen
}

/// Runs all checks on an agent; with `MOTE_ONLY` those whose claim or group contains it.
fn run(agent: &Agent, checks: &[Check]) -> Seen {
    let only = std::env::var("MOTE_ONLY").unwrap_or_default();
    let wanted = |check: &Check| {
        check.applies(agent.column)
            && (check.claim.contains(&only) || check.group.heading.contains(&only))
    };
    let mut seen: Seen = checks.iter().map(|_| None).collect();
    let look = |check: &Check| {
        // Waiting for a terminal panics at its limit, which must end only this check.
        attempt(|| (check.run)(agent))
            .unwrap_or_else(|text| Err(Miss::No(format!("a panic, printed above: {text}"))))
    };
    let pick = |pace: Pace| {
        checks
            .iter()
            .enumerate()
            .filter(move |(_, check)| check.group.pace == pace && wanted(check))
    };
    thread::scope(|scope| {
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

#[derive(Clone, Debug)]
pub struct Page {
    pub text: String,
    /// Cells that lack a listed reason, and reasons that fit no cell.
    pub unexplained: Vec<String>,
    /// Cells without a listed reason in which a Go agent was too slow. A busy machine may have
    /// caused that, so the result is unknown and does not fail the suite.
    pub unknown: Vec<String>,
}

/// Reasons for the differences between agents: every cell that is not "yes" needs one, and vice
/// versa.
static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));

const HEAD: &str = include_str!("head.md");

/// Renders the page. If it is `whole`, each reason must have a cell.
pub fn render(checks: &[Check], columns: &[(Column, Seen)], whole: bool) -> Page {
    let titles: Vec<_> = columns.iter().map(|(column, _)| column.title()).collect();
    let mut table = Table::new(&REASONS, &titles);
    let (mut body, mut group, mut unknown) = (String::new(), "", Vec::new());
    for (row, check) in checks.iter().enumerate() {
        if check.group.heading != group {
            group = check.group.heading;
            body += &format!("\n## {group}\n\n{}", table.head("behaviour | source"));
        }
        let name = (check.group.heading, check.claim);
        let mut verdicts = Vec::new();
        for (column, (agent, seen)) in columns.iter().enumerate() {
            let known = agent.is_mote() || table.explains(column, name);
            verdicts.push(match &seen[row] {
                Some(Err(miss)) if !known && miss.is_late() => {
                    unknown.push(format!("{}: {}: {miss:?}", agent.title(), check.claim));
                    Some(Verdict::Unknown("it was too slow".into()))
                }
                claim => claim.as_ref().map(verdict),
            });
        }
        body += &table.row(&[check.claim, check.group.source], name, &verdicts);
    }
    let sums = table.sums(&["yes", "differs", "no", "sometimes"]);
    let text = format!("{HEAD}{sums}{body}\n## Notes\n{}", table.notes.list());
    let whole = whole && unknown.is_empty();
    Page { text, unexplained: table.unexplained(whole), unknown }
}

fn verdict(claim: &Claim) -> Verdict {
    match claim {
        Ok(()) => Verdict::Holds(String::new()),
        Err(Miss::No(text)) => Verdict::Fails(text.clone()),
        Err(Miss::Differs(text)) => Verdict::Differs(text.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_go_agent_is_unknown_and_a_late_mote_fails() {
        let row = |claim| Group::new("Group", "P§1").is(claim, |_| Ok(()));
        let checks =
            [row("nothing is late"), row("`boot_time_seconds` and `time_seconds` are there")];
        let miss = |why: &str| Some(Err(Miss::from(why)));
        let columns = |why: &str| Column::ALL.map(|column| (column, vec![miss(why), miss(why)]));
        let late = render(&checks, &columns("nothing came in time"), false);
        let of = |lines: &[String], agent: &str| {
            lines.iter().filter(|line| line.starts_with(&format!("{agent}: "))).count()
        };
        let counts = |lines: &[String]| Column::ALL.map(|column| of(lines, column.title()));
        assert_eq!(
            (counts(&late.unexplained), counts(&late.unknown)),
            ([2, 0, 2, 0], [0, 2, 0, 1])
        );
        let refused = render(&checks, &columns("404"), false);
        assert_eq!(
            (counts(&refused.unexplained), counts(&refused.unknown)),
            ([2, 2, 2, 1], [0; 4])
        );
    }
}
