//! Executions so far: a line for each target in `tests/fuzz/tally`, which `scripts/fuzz --keep`
//! updates, and the page's table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::{TARGETS, corpus};

/// Figures of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Executions of all recorded runs.
    pub executions: u64,
    /// Their time, seconds.
    pub seconds: u64,
    /// Edges that the last recorded run covered.
    pub edges: u64,
    /// Edges of the program, including the checks'.
    pub of: u64,
    /// Covered and total lines of the target's files; 0 if not measured.
    pub lines: (u64, u64),
}

pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tally")
}

const HEAD: &str = "# target executions seconds edges of lines of: kept by scripts/fuzz\n";

pub fn read(text: &str) -> BTreeMap<String, Count> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let one = |line: &str| {
        let mut words = line.split(' ');
        let target = words.next()?.to_owned();
        let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [executions, seconds, edges, of, covered, lines] = numbers[..] else { return None };
        Some((target, Count { executions, seconds, edges, of, lines: (covered, lines) }))
    };
    lines.map(|line| one(line).unwrap_or_else(|| panic!("no line of a tally: {line}"))).collect()
}

pub fn write(all: &BTreeMap<String, Count>) -> String {
    let mut out = String::from(HEAD);
    for (target, count) in all {
        let Count { executions, seconds, edges, of, lines: (covered, lines) } = count;
        writeln!(out, "{target} {executions} {seconds} {edges} {of} {covered} {lines}")
            .expect("a string");
    }
    out
}

fn shown(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns the page's table.
pub fn table(all: &BTreeMap<String, Count>) -> String {
    let mut out = String::from(
        "| target | executions | per s | edges | lines of its files | inputs kept |\n\
         | --- | --: | --: | --: | --: | --: |\n",
    );
    let mut sum = 0;
    for target in TARGETS {
        let count = all.get(*target).copied().unwrap_or_default();
        let Count { executions, seconds, edges, of, lines: (covered, lines) } = count;
        sum += executions;
        let part = (covered * 100).checked_div(lines);
        writeln!(
            out,
            "| `{target}` | {} | {} | {} of {} | {} | {} |",
            shown(executions),
            shown(executions.checked_div(seconds).unwrap_or(0)),
            shown(edges),
            shown(of),
            part.map_or("-".into(), |part| format!("{part} % of {}", shown(lines))),
            corpus::kept(target).len(),
        )
        .expect("a string");
    }
    writeln!(out, "| all | {} | | | | |", shown(sum)).expect("a string");
    out
}

pub const MARKS: [&str; 2] = ["<!-- fuzz:begin -->\n", "<!-- fuzz:end -->\n"];

/// Returns the page with this table; `None` if it has no place for one.
pub fn page(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(MARKS[0])?;
    let (_, after) = rest.split_once(MARKS[1])?;
    Some([before, MARKS[0], table, MARKS[1], after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_reads_back() {
        let count = Count { executions: 1_234_567, seconds: 10, edges: 5, of: 9, lines: (1, 4) };
        let all = BTreeMap::from([(TARGETS[0].to_owned(), count)]);
        assert_eq!(read(&write(&all)), all);
        let table = table(&all);
        assert!(table.contains("| 1,234,567 | 123,456 | 5 of 9 | 25 % of 4 |"), "{table}");
        assert!(table.contains("| all | 1,234,567 |"));
        let whole = format!("a\n{}old\n{}b\n", MARKS[0], MARKS[1]);
        assert_eq!(page(&whole, "new\n").unwrap(), whole.replace("old", "new"));
    }
}
