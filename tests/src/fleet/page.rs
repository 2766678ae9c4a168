//! `docs/fleet.md` and its picture, from simulations.

use std::fmt::Write as _;
use std::time::Duration;

use super::clock::{Micros, SECOND};
use super::model::{Channel, Plan};
use super::study::{Figures, Scenario, figures};
use crate::pages::text::grouped;

/// Numbers of agents in the tables.
pub const SIZES: [u32; 5] = [1, 10, 100, 1_000, 10_000];
/// The jitter of the tables: a quarter, in 256ths.
const QUARTER: u64 = 64;

/// The page: its text with the tables filled in.
#[must_use]
pub fn page() -> String {
    let text = include_str!("page.md");
    let tables = [
        ("BACK", back(Channel::Ring, &SIZES)),
        ("BACK-CONNECT", back(Channel::Line, &SIZES)),
        ("LOAD", load(10_000)),
        ("LOAD-1000", load(1_000)),
        ("JITTER", jitter()),
        ("CONNECTED", connected()),
        ("STARTED", started()),
        ("MACHINE", machine()),
    ];
    let mut page = text.to_owned();
    for (name, table) in tables {
        let mark = format!("<!-- {name} -->\n");
        assert!(page.contains(&mark), "no mark for {name}");
        page = page.replace(&mark, &table);
    }
    page
}

/// The table of times until 99 % and all agents are CONNECTED again, for each size.
#[must_use]
pub fn back(channel: Channel, sizes: &[u32]) -> String {
    let mut head = String::from("| agents |");
    for size in sizes {
        let _written = write!(head, " {} |", grouped(u64::from(*size)));
    }
    let mut out = format!("{head}\n|{}\n", " ---: |".repeat(sizes.len() + 1));
    for scenario in Scenario::ALL.into_iter().filter(|scenario| scenario.comes_back()) {
        let _written = write!(out, "| {} |", scenario.name);
        for size in sizes {
            let [_, most, all] = figures(&scenario.plan(*size, channel)).back;
            let _written = write!(out, " {}, {} |", seconds(most), seconds(all));
        }
        out.push('\n');
    }
    out
}

/// The table of the host's load, for one size.
#[must_use]
pub fn load(agents: u32) -> String {
    let head = format!(
        "| {} agents | reads/s | most | cores | most | calls at once | calls that failed |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        grouped(u64::from(agents))
    );
    let mut out = head;
    for channel in [Channel::Ring, Channel::Line] {
        for scenario in Scenario::ALL {
            let name = named(scenario, channel);
            row(&mut out, &name, &figures(&scenario.plan(agents, channel)));
        }
    }
    out
}

fn row(out: &mut String, name: &str, figures: &Figures) {
    let _written = writeln!(
        out,
        "| {name} | {:.0} | {} | {:.2} | {:.1} | {} | {} |",
        figures.reads.0,
        grouped(figures.reads.1),
        figures.cores.0,
        figures.cores.1,
        grouped(figures.calls),
        grouped(figures.failed),
    );
}

fn named(scenario: Scenario, channel: Channel) -> String {
    match channel {
        Channel::Ring => scenario.name.to_owned(),
        Channel::Line => format!("{}, CONNECT", scenario.name),
    }
}

/// The table of effects of jitter.
#[must_use]
pub fn jitter() -> String {
    let mut out = String::from(
        "| 10,000 agents: without, with | 99 % back, s | all back, s | reads/s | most | most in the last 40 s | failed |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let scenarios = [
        Scenario::RESTART,
        Scenario::FAILING,
        Scenario::BOOT,
        Scenario::SPREAD,
        Scenario::QUIET,
        Scenario::IN_STEP,
    ];
    for scenario in scenarios {
        let without = scenario.plan(10_000, Channel::Ring);
        let with = Plan { jitter: QUARTER, ..without.clone() };
        let [a, b] = [without, with].map(|plan| figures(&plan));
        let _written = writeln!(
            out,
            "| {} | {}, {} | {}, {} | {:.0}, {:.0} | {}, {} | {}, {} | {}, {} |",
            scenario.name,
            seconds(a.back[1]),
            seconds(b.back[1]),
            seconds(a.back[2]),
            seconds(b.back[2]),
            a.reads.0,
            b.reads.0,
            grouped(a.reads.1),
            grouped(b.reads.1),
            grouped(a.late_reads),
            grouped(b.late_reads),
            grouped(a.failed),
            grouped(b.failed),
        );
    }
    out
}

fn connected() -> String {
    let mut out = String::from(
        "| CONNECTED, s | reads/s | cores | down 0.5 s: 99 %, all back | down 2 s: 99 %, all back | \
         CONNECT: reads/s | cores | down 2 s: 99 %, all back |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for pause in [1, 2, 5, 10, 30, 60] {
        let look = |scenario: Scenario, channel| {
            let mut plan = scenario.plan(1_000, channel);
            plan.intervals.connected = Duration::from_secs(pause);
            figures(&plan)
        };
        let (ring, line) = (Channel::Ring, Channel::Line);
        let [quiet, quiet_line] = [ring, line].map(|channel| look(Scenario::QUIET, channel));
        let times = |it: &Figures| format!("{}, {}", seconds(it.back[1]), seconds(it.back[2]));
        let _written = writeln!(
            out,
            "| {pause} | {:.0} | {:.3} | {} | {} | {:.0} | {:.3} | {} |",
            quiet.reads.0,
            quiet.cores.0,
            times(&look(Scenario::BLINK, ring)),
            times(&look(Scenario::RESTART, ring)),
            quiet_line.reads.0,
            quiet_line.cores.0,
            times(&look(Scenario::RESTART, line)),
        );
    }
    out
}

fn started() -> String {
    let mut out = String::from(
        "| STARTED, s | boot: all, s | down 30 s: 99 %, all back | calls fail: 99 %, all back | reads/s then |\n\
         | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for pause in [100, 500, 1_000, 2_000, 5_000, 10_000] {
        let look = |scenario: Scenario| {
            let mut plan = scenario.plan(1_000, Channel::Ring);
            plan.intervals.started = Duration::from_millis(pause);
            figures(&plan)
        };
        let [boot, upgrade, failing] =
            [Scenario::BOOT, Scenario::UPGRADE, Scenario::FAILING].map(look);
        let _written = writeln!(
            out,
            "| {} | {} | {}, {} | {}, {} | {:.0} |",
            Duration::from_millis(pause).as_secs_f64(),
            seconds(boot.back[2]),
            seconds(upgrade.back[1]),
            seconds(upgrade.back[2]),
            seconds(failing.back[1]),
            seconds(failing.back[2]),
            failing.reads.0,
        );
    }
    out
}

fn machine() -> String {
    let mut out = String::from(
        "| cores | to take up a VM, ms | down 2 s: 99 %, all back | calls at once | calls that failed |\n\
         | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (cores, register) in [(16, 1_000), (16, 100), (16, 10_000), (4, 1_000), (64, 1_000)] {
        let mut plan = Scenario::RESTART.plan(10_000, Channel::Ring);
        // The slowest case takes longer than the default.
        plan.watch = 200 * SECOND;
        (plan.model.cores, plan.model.register) = (cores, register);
        let it = figures(&plan);
        let _written = writeln!(
            out,
            "| {cores} | {} | {}, {} | {} | {} |",
            Duration::from_micros(register).as_secs_f64() * 1000.0,
            seconds(it.back[1]),
            seconds(it.back[2]),
            grouped(it.calls),
            grouped(it.failed),
        );
    }
    out
}

/// Formats seconds with one digit, or with two below 1 s.
fn seconds(time: Option<Micros>) -> String {
    match time.map(|time| Duration::from_micros(time).as_secs_f64()) {
        None => "-".into(),
        Some(time) if time < 1.0 => format!("{time:.2}"),
        Some(time) => format!("{time:.1}"),
    }
}
