//! Measures one agent in one VM, row by row. A failed step returns its reason instead of its rows,
//! and the next one runs.

use std::time::Duration;

use super::book::Found;
use super::rows::{FLOOR, SINK};
use super::start::{MEMORY, Visit};
use super::{calls, from_host, start};
use crate::{Column, Spec, attempt, proc, world};

/// After CONNECTED, until an agent counts as idle.
const SETTLED: Duration = Duration::from_secs(2);
/// The same after its calls.
const RESTED: Duration = Duration::from_secs(1);

struct Step {
    rows: &'static [&'static str],
    run: fn(&mut Visit) -> Found,
}

/// The steps in their order. The first starts the agent and always runs.
const STEPS: [Step; 7] = [
    Step { rows: &["answered", "told"], run: start::start },
    Step { rows: &["pss"], run: |visit| memory(visit, SETTLED, "pss") },
    // After the next step the agent has answered 300 calls.
    Step { rows: &["config", "root"], run: calls::sequential },
    Step { rows: &[FLOOR], run: calls::floor },
    Step { rows: &["pss300"], run: |visit| memory(visit, RESTED, "pss300") },
    Step { rows: &["exec", "put", "get"], run: from_host::all },
    Step { rows: &[SINK], run: from_host::sink },
];

pub(super) fn is_wanted(wanted: &dyn Fn(&str) -> bool) -> bool {
    STEPS.iter().flat_map(|step| step.rows).any(|row| wanted(row))
}

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
        let calls = step.rows.contains(&"config") && wanted("pss300");
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

/// The proportional set size, kB.
fn memory(visit: &mut Visit, settled: Duration, row: &'static str) -> Found {
    std::thread::sleep(settled);
    let text = visit.proc("smaps_rollup");
    let pss = proc::kilobytes(&text, "Pss:").and_then(|value| u32::try_from(value).ok());
    vec![(row, pss.map(f64::from).ok_or_else(|| format!("no Pss in {text}")))]
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
