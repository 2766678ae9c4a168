//! Budgets of costs: files in `tests/budgets`, one figure per line. A higher cost fails. A lower
//! one is only printed, so that the budget can be reduced.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use super::Row;

#[derive(Debug)]
pub struct Budget {
    pub file: &'static str,
    pub tolerance: fn(&str, u64) -> u64,
}

/// Bytes, and the agent's own instructions in user mode. Runs differ by less than 1 %, short calls
/// by up to 6 %, which is one wake-up.
pub const COST: Budget =
    Budget { file: "cost", tolerance: |_, cost| if cost > 1_000_000 { 3 } else { 10 } };

type Costs = BTreeMap<(String, usize), u64>;

fn held(rows: &[Row]) -> impl Iterator<Item = ((String, usize), u64)> {
    rows.iter().flat_map(|row| {
        let held = row.cost.iter().filter(|(count, _)| row.held.contains(count));
        held.map(|(count, cost)| ((row.name.to_owned(), *count), *cost))
    })
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/budgets").join(file)
}

fn read(file: &str) -> Costs {
    let text = std::fs::read_to_string(path(file)).unwrap_or_default();
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (name, count) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
        Some(((name, count), fields.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

impl Budget {
    fn read(&self) -> Costs {
        read(self.file)
    }

    /// Fails if a figure exceeds the budget. `MOTE_RECORD=1` first makes it the budget.
    pub fn hold(&self, rows: &[Row]) {
        if std::env::var_os("MOTE_RECORD").is_some() {
            self.record(rows);
        }
        let exceeded = self.exceeded(rows);
        assert!(exceeded.is_empty(), "over tests/budgets/{}:\n{}", self.file, exceeded.join("\n"));
    }

    fn record(&self, rows: &[Row]) {
        let mut costs = self.read();
        costs.extend(held(rows));
        let mut text = String::new();
        for ((name, count), cost) in &costs {
            writeln!(text, "{name}\t{count}\t{cost}").expect("a string");
        }
        std::fs::write(path(self.file), text).expect("the budget");
    }

    fn exceeded(&self, rows: &[Row]) -> Vec<String> {
        let costs = self.read();
        let mut all = Vec::new();
        for (key, cost) in held(rows) {
            let (name, count) = &key;
            let Some(limit) = costs.get(&key) else {
                all.push(format!("{name} ({count}): {cost}, not in the budget"));
                continue;
            };
            let thousandths = (cost.abs_diff(*limit) * 1000).checked_div(*limit).unwrap_or(0);
            if thousandths <= (self.tolerance)(name, *limit) * 10 {
                continue;
            }
            let way = if cost > *limit { "more" } else { "less" };
            let (whole, tenth) = (thousandths / 10, thousandths % 10);
            let text = format!("{name} ({count}): {cost}, {whole}.{tenth} % {way} than {limit}");
            if cost > *limit {
                all.push(text);
            } else {
                println!("{text}; MOTE_RECORD=1 keeps it");
            }
        }
        all
    }
}
