//! Renders `docs/results/cost.md` from the measurements.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::Row;
use crate::pages::text::grouped;

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
