//! One agent in one VM: started when we say so, then measured row by row. Each step gives its rows;
//! one that fails says why in place of them, and the next goes on.

use std::time::{Duration, SystemTime};

use super::book::Found;
use super::rows::FLOOR;
use super::{attempt, calls, from_host, start};
use crate::column::Column;
use crate::guest::Guest;
use crate::proc;
use crate::vm::Spec;
use crate::world::{self, World};

/// Memory of the VM, MiB.
pub(super) const MEMORY: u32 = 384;
/// After CONNECTED, until an agent counts as idle.
const SETTLED: Duration = Duration::from_secs(2);

/// An agent that is being measured.
#[derive(Debug)]
pub(super) struct Visit {
    /// Which.
    pub(super) column: Column,
    /// Its guest.
    pub(super) guest: Guest,
    /// Its machine and host.
    pub(super) world: World,
}

/// Rows and how they are measured.
struct Step {
    rows: &'static [&'static str],
    run: fn(&mut Visit) -> Found,
}

/// In this order. The first starts the agent, and is not left out.
const STEPS: [Step; 9] = [
    Step { rows: &["started", "answered", "told"], run: start::start },
    Step { rows: &["pss", "dirty"], run: |visit| memory(visit, SETTLED, ["pss", "dirty"]) },
    // After the next step the agent has answered 300 calls.
    Step { rows: &["config", "config99", "rate1", "root", "root99"], run: calls::sequential },
    Step { rows: &[FLOOR], run: calls::floor },
    Step { rows: &["pss300", "dirty300", "threads"], run: after_calls },
    Step { rows: &["rate8", "late8", "rate64", "late64"], run: calls::at_once },
    Step { rows: &["image"], run: calls::image },
    Step { rows: &["exec", "stdout", "put", "get", "metrics"], run: from_host::all },
    Step { rows: &["back"], run: start::recover },
];

/// Whether any of these rows are.
pub(super) fn is_wanted(wanted: &dyn Fn(&str) -> bool) -> bool {
    STEPS.iter().flat_map(|step| step.rows).any(|row| wanted(row))
}

/// Boots, starts, measures the rows that are wanted.
pub(super) fn visit(column: Column, wanted: &dyn Fn(&str) -> bool) -> Found {
    let all = || STEPS.iter().flat_map(|step| step.rows).filter(|row| wanted(row));
    let boot = || Visit::boot(column, &Spec { memory: MEMORY, ..world::spec(column) });
    let mut visit = match attempt(boot) {
        Ok(visit) => visit,
        Err(why) => return all().map(|row| (*row, Err(why.clone()))).collect(),
    };
    let mut found = Vec::new();
    for (index, step) in STEPS.iter().enumerate() {
        // What "300 calls" means must not depend on what else is asked for.
        let after = ["pss300", "dirty300", "threads"].iter().any(|row| wanted(row));
        let calls = step.rows.contains(&"config") && after;
        if index > 0 && !calls && !step.rows.iter().any(|row| wanted(row)) {
            continue;
        }
        found.extend(match attempt(|| (step.run)(&mut visit)) {
            Ok(found) => found,
            Err(why) => step.rows.iter().map(|row| (*row, Err(why.clone()))).collect(),
        });
    }
    found.retain(|(row, _)| wanted(row));
    found
}

impl Visit {
    /// Boots the VM up to its shell; the agent is ready to be started.
    #[must_use]
    pub(super) fn boot(column: Column, spec: &Spec) -> Self {
        let words = format!("{} mote.agent=later", spec.words);
        let size = format!("mote.image.size={}", calls::IMAGE);
        let config = ["user.foo=bar", "security.devlxd.images=true", &size];
        let mut world = World::boot(column, &Spec { words, ..spec.clone() }, &config);
        let guest = world.vm.guest();
        Self { column, guest, world }
    }

    /// One of the files below the agent's /proc, all threads' if the name begins with `task/*/`.
    pub(super) fn proc(&mut self, name: &str) -> String {
        self.guest.ok(&format!("cat /proc/$(cat /run/agent.pid)/{name}"))
    }
}

/// kB of these fields of `smaps_rollup`.
fn memory(visit: &mut Visit, settled: Duration, rows: [&'static str; 2]) -> Found {
    std::thread::sleep(settled);
    let text = visit.proc("smaps_rollup");
    let kilobytes = |name: &str| {
        let value = proc::kilobytes(&text, name).and_then(|value| u32::try_from(value).ok());
        value.map(f64::from).ok_or_else(|| format!("no {name} in {text}"))
    };
    vec![(rows[0], kilobytes("Pss:")), (rows[1], kilobytes("Private_Dirty:"))]
}

fn after_calls(visit: &mut Visit) -> Found {
    let mut found = memory(visit, Duration::from_secs(1), ["pss300", "dirty300"]);
    let threads = visit.guest.ok("ls /proc/$(cat /run/agent.pid)/task | wc -l");
    found.push(("threads", threads.trim().parse().map_err(|_| threads)));
    found
}

/// Milliseconds from one moment to another.
#[must_use]
pub(super) fn millis(from: SystemTime, to: SystemTime) -> f64 {
    match to.duration_since(from) {
        Ok(time) => time.as_secs_f64() * 1e3,
        Err(error) => -error.duration().as_secs_f64() * 1e3,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::find;
    use super::STEPS;

    #[test]
    fn steps_give_rows_that_exist_and_each_once() {
        let all: Vec<&str> = STEPS.iter().flat_map(|step| step.rows).copied().collect();
        for (index, row) in all.iter().enumerate() {
            assert!(find(row).is_some(), "{row}");
            assert!(!all[..index].contains(row), "{row} twice");
        }
    }
}
