//! What each thing may cost: `scripts/cost-budget`, a line each. More than that fails; less is only told,
//! so that what was won can be kept.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use super::Row;

/// How much more or less a figure may be, in percent. Runs differ by less than 1 %, but in a short call by
/// up to 6 %: what a wake-up more or less is.
fn tolerance(cost: u64) -> u64 {
    if cost > 1_000_000 { 3 } else { 10 }
}

/// The lines: name, how many there are, cost.
type Budget = BTreeMap<(String, usize), u64>;

/// The figures that are held.
fn held(rows: &[Row]) -> impl Iterator<Item = ((String, usize), u64)> {
    rows.iter().flat_map(|row| {
        let held = row.cost.iter().filter(|(count, _)| row.held.contains(count));
        held.map(|(count, cost)| ((row.name.to_owned(), *count), *cost))
    })
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scripts/cost-budget")
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

/// Writes the figures in.
///
/// # Panics
/// If they cannot be written.
pub fn record(rows: &[Row]) {
    let mut budget = read();
    budget.extend(held(rows));
    let mut text = String::new();
    for ((name, count), cost) in &budget {
        writeln!(text, "{name}\t{count}\t{cost}").expect("a string");
    }
    std::fs::write(path(), text).expect("the budget");
}

/// Which figures are over the budget, and by how much.
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
