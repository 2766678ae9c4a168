//! Marginal costs of the agent in bytes and instructions: measuring, budget, and the page
//! `docs/results/cost.md`.

pub mod budget;
pub mod callgrind;
pub mod front_page;

use std::collections::BTreeSet;
use std::ops::Range;

use mote_checks::markdown;

use crate::pages::text::grouped;
use crate::proc;

/// Numbers of items for which costs are measured.
pub const STEPS: [usize; 4] = [1, 10, 100, 1000];

/// Cost of one item, by the number of items.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: &'static str,
    /// Note in the page: what is counted, or why there cannot be 1,000 of it.
    pub note: &'static str,
    /// Number of items, and the cost of each.
    pub cost: Vec<(usize, u64)>,
    /// Numbers for which the budget limits the cost; for others it depends on timing.
    pub held: Range<usize>,
}

/// The budget limits the cost for any number.
pub const ALWAYS: Range<usize> = 0..usize::MAX;

/// Anonymous memory of a process, bytes.
pub fn anonymous(pid: u32) -> u64 {
    proc::memory(pid, "smaps_rollup", "Anonymous:") * 1024
}

#[derive(Debug)]
pub struct Table<'a> {
    pub text: &'a str,
    /// Title of the first column.
    pub what: &'a str,
    pub rows: &'a [Row],
}

pub fn render(tables: &[Table<'_>]) -> String {
    let mut page = String::from(TOP);
    for table in tables {
        page += &table.render();
    }
    page
}

impl Table<'_> {
    fn render(&self) -> String {
        let counts = self.rows.iter().flat_map(|row| row.cost.iter().map(|(count, _)| *count));
        let counts: BTreeSet<_> = counts.collect();
        let titles: Vec<_> = counts.iter().map(|count| grouped(*count as u64)).collect();
        let titles = markdown::numbers(titles.iter().map(String::as_str));
        let head = [markdown::texts([self.what]), titles, markdown::texts([""])].concat();
        let rows = self.rows.iter().map(|row| {
            let cost = |count| row.cost.iter().find(|(at, _)| at == count);
            let cell = |count| cost(count).map_or_else(|| "-".into(), |(_, cost)| grouped(*cost));
            let costs = counts.iter().map(cell).collect();
            [vec![row.name.to_owned()], costs, vec![row.note.to_owned()]].concat()
        });
        format!("\n{}\n\n{}", self.text.trim(), markdown::table(&head, rows))
    }
}

const TOP: &str = "\
# Cost of one more of each thing

`MOTE_WRITE_DOCS=1 scripts/test cost` generates this page from the shipped binary over unix sockets. A column is
the number that is present, a figure the cost of each. `scripts/test` fails if a figure exceeds `tests/budgets/cost` by more than
3 % (short calls: 10 %).
";
