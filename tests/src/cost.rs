//! Budgets of costs: files in `tests/budgets`, one figure per line. A higher cost fails. A lower
//! one is only printed, so that the budget can be reduced.

use crate::prelude::*;
use std::fmt::Write;
use std::ops::Range;

/// Cost of one item, by the number of items.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: &'static str,
    /// Note in the page: what an item consists of, or why there cannot be 1,000 of them.
    pub note: &'static str,
    /// Number of items, and the cost of each.
    pub cost: Vec<(usize, u64)>,
    /// Numbers of items for which the budget limits the cost; for others it depends on timing.
    pub held: Range<usize>,
}

/// The budget limits the cost for any number of items.
const ALWAYS: Range<usize> = 0..usize::MAX;

impl Row {
    /// Returns a row whose budget limits the cost for any number of items.
    pub fn new(name: &'static str, note: &'static str, cost: Vec<(usize, u64)>) -> Self {
        Self { name, note, cost, held: ALWAYS }
    }
}

pub fn anonymous(pid: u32) -> u64 {
    proc::memory(pid, "smaps_rollup", "Anonymous:") * 1024
}

pub struct Budget {
    pub file: &'static str,
    pub tolerance: fn(&str, u64) -> u64,
}

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
    let text = fs::read_to_string(path(file)).unwrap_or_default();
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (name, count) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
        Some(((name, count), fields.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

impl Budget {
    /// Fails if a figure exceeds its budget. `MOTE_RECORD=1` first records the figures.
    pub fn hold(&self, rows: &[Row]) {
        if std::env::var_os("MOTE_RECORD").is_some() {
            self.record(rows);
        }
        let exceeded = self.exceeded(rows);
        assert!(exceeded.is_empty(), "over tests/budgets/{}:\n{}", self.file, exceeded.join("\n"));
    }

    fn record(&self, rows: &[Row]) {
        let mut costs = read(self.file);
        costs.extend(held(rows));
        let mut text = String::new();
        for ((name, count), cost) in &costs {
            writeln!(text, "{name}\t{count}\t{cost}").expect("a string");
        }
        fs::write(path(self.file), text).expect("the budget");
    }

    fn exceeded(&self, rows: &[Row]) -> Vec<String> {
        let costs = read(self.file);
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

/// Returns mote's figure in this row of README's table.
pub fn claimed(row: &str) -> u64 {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).expect("README");
    let line = readme
        .lines()
        .find_map(|line| line.strip_prefix("| ")?.strip_prefix(row)?.strip_prefix(" | "));
    let figure = line.unwrap_or_else(|| panic!("README has no row {row}"));
    // mote's figure is the first one.
    let figure = figure.split(" | ").next().unwrap_or_default();
    figure.trim_end_matches(" |").replace(',', "").parse().expect("a number")
}
