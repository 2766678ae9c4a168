//! Marginal costs of the agent in bytes and instructions: measuring, budget, and the page
//! `docs/results/cost.md`.

pub mod budget;
pub mod callgrind;
pub mod front_page;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

use crate::pages::text::grouped;
use crate::proc;

/// Numbers of things for which costs are measured.
pub const STEPS: [usize; 4] = [1, 10, 100, 1000];

/// Cost of one thing, by the number of them.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: &'static str,
    /// Note in the page: what is counted, or why there cannot be 1,000 of it.
    pub note: &'static str,
    /// Number of things, and the cost of one.
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
        // Writing to a string never fails.
        let _infallible = table.write(&mut page);
    }
    page
}

impl Table<'_> {
    fn write(&self, page: &mut String) -> std::fmt::Result {
        let counts = self.rows.iter().flat_map(|row| row.cost.iter().map(|(count, _)| *count));
        let counts: BTreeSet<_> = counts.collect();
        write!(page, "\n{}\n\n| {} |", self.text.trim(), self.what)?;
        for count in &counts {
            write!(page, " {} |", grouped(*count as u64))?;
        }
        writeln!(page, " |\n| --- |{} --- |", " ---: |".repeat(counts.len()))?;
        for row in self.rows {
            write!(page, "| {} |", row.name)?;
            for count in &counts {
                let cost = row.cost.iter().find(|(at, _)| at == count);
                let cost = cost.map_or_else(|| "-".into(), |(_, cost)| grouped(*cost));
                write!(page, " {cost} |")?;
            }
            writeln!(page, " {} |", row.note)?;
        }
        Ok(())
    }
}

const TOP: &str = "\
# Cost of one more of each thing

`MOTE_WRITE_DOCS=1 scripts/test cost` generates this page from the shipped binary over unix sockets. A column is
the number that is present, a figure the cost of each. `scripts/test` fails if a figure exceeds `tests/budgets/cost` by more than
3 % (short calls: 10 %).
";
