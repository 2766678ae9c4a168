//! Measures one agent in one VM, row by row. A failed step returns its reason instead of its rows,
//! and the next one runs.

use std::time::Duration;

use super::book::Found;
use super::rows::{FLOOR, SINK};
use super::visit::{MEMORY, Visit, attempt};
use super::{calls, from_host, start};
use crate::{Column, Spec, proc, world};

/// After CONNECTED, until an agent counts as idle.
const SETTLED: Duration = Duration::from_secs(2);
/// The same after its calls.
const RESTED: Duration = Duration::from_secs(1);

/// Rows and how they are measured.
struct Step {
    rows: &'static [&'static str],
    run: fn(&mut Visit) -> Found,
}

/// The steps in their order. The first starts the agent and always runs.
const STEPS: [Step; 7] = [
    Step { rows: &["started", "answered", "told"], run: start::start },
    Step { rows: &["pss", "dirty"], run: |visit| memory(visit, SETTLED, ["pss", "dirty"]) },
    // After the next step the agent has answered 300 calls.
    Step { rows: &["config", "config99", "rate1", "root", "root99"], run: calls::sequential },
    Step { rows: &[FLOOR], run: calls::floor },
    Step {
        rows: &["pss300", "dirty300"],
        run: |visit| memory(visit, RESTED, ["pss300", "dirty300"]),
    },
    Step { rows: &["exec", "stdout", "put", "get", "metrics"], run: from_host::all },
    Step { rows: &[SINK], run: from_host::sink },
];

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
        // "300 calls" must mean the same, whatever else is measured.
        let after = ["pss300", "dirty300"].iter().any(|row| wanted(row));
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

#[cfg(test)]
mod tests {
    use super::super::rows::find;
    use super::STEPS;

    #[test]
    fn each_row_has_one_step() {
        let all: Vec<&str> = STEPS.iter().flat_map(|step| step.rows).copied().collect();
        for (index, row) in all.iter().enumerate() {
            assert!(find(row).is_some(), "{row}");
            assert!(!all[..index].contains(row), "{row} twice");
        }
    }
}
