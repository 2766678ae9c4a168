//! What each thing may cost: `tests/budgets/cost`, a line each. More than that fails; less is only told,
//! so that what was won can be kept.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use super::Row;

/// Tolerance of a figure, percent. Runs differ by less than 1 %, but short calls by up to 6 %,
/// which is one wake-up.
fn tolerance(cost: u64) -> u64 {
    if cost > 1_000_000 { 3 } else { 10 }
}

/// Costs by name and number of things.
type Budget = BTreeMap<(String, usize), u64>;

/// The figures that the budget limits.
fn held(rows: &[Row]) -> impl Iterator<Item = ((String, usize), u64)> {
    rows.iter().flat_map(|row| {
        let held = row.cost.iter().filter(|(count, _)| row.held.contains(count));
        held.map(|(count, cost)| ((row.name.to_owned(), *count), *cost))
    })
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/budgets/cost")
}

fn read() -> Budget {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (name, count) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
        Some(((name, count), fields.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Records the figures in the budget.
///
/// # Panics
/// If the file cannot be written.
pub fn record(rows: &[Row]) {
    let mut budget = read();
    budget.extend(held(rows));
    let mut text = String::new();
    for ((name, count), cost) in &budget {
        writeln!(text, "{name}\t{count}\t{cost}").expect("a string");
    }
    std::fs::write(path(), text).expect("the budget");
}

/// Messages about the figures over the budget.
#[must_use]
pub fn exceeded(rows: &[Row]) -> Vec<String> {
    let budget = read();
    let mut all = Vec::new();
    for (key, cost) in held(rows) {
        let (name, count) = &key;
        let Some(limit) = budget.get(&key) else {
            all.push(format!("{name} ({count}): {cost}, not in the budget"));
            continue;
        };
        let thousandths = (cost.abs_diff(*limit) * 1000).checked_div(*limit).unwrap_or(0);
        if thousandths <= tolerance(*limit) * 10 {
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
