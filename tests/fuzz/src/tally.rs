//! Executions so far: a line per target in `tests/fuzz/tally`, written by `scripts/fuzz --keep`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mote_checks::markdown::grouped;

use crate::{TARGETS, corpus};

/// For each target: executions and seconds of all recorded runs, edges that the last run covered,
/// and edges of the whole program, which include those of the checks.
pub type Tally = BTreeMap<String, [u64; 4]>;

pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tally")
}

const HEAD: &str = "# target executions seconds edges of: kept by scripts/fuzz\n";

pub fn read(text: &str) -> Tally {
    let one = |line: &str| {
        let (target, numbers) = line.split_once(' ')?;
        let numbers = numbers.split(' ').map(|word| word.parse().ok());
        Some((target.to_owned(), numbers.collect::<Option<Vec<u64>>>()?.try_into().ok()?))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| one(line).unwrap_or_else(|| panic!("no line of a tally: {line}"))).collect()
}

pub fn write(all: &Tally) -> String {
    let line = |(target, count): (&String, &[u64; 4])| {
        format!("{target} {}\n", count.map(|number| number.to_string()).join(" "))
    };
    HEAD.to_owned() + &all.iter().map(line).collect::<String>()
}

pub fn table(all: &Tally) -> String {
    let head = "| target | executions | per s | edges | inputs kept |\n\
                | --- | --: | --: | --: | --: |\n";
    let row = |target: &&str| {
        let [executions, seconds, edges, of] = all.get(*target).copied().unwrap_or_default();
        let speed = grouped(executions.checked_div(seconds).unwrap_or(0));
        let [executions, edges, of] = [executions, edges, of].map(grouped);
        let kept = corpus::kept(target).len();
        format!("| `{target}` | {executions} | {speed} | {edges} of {of} | {kept} |\n")
    };
    let sum = grouped(all.values().map(|count| count[0]).sum());
    format!("{head}{}| all | {sum} | | | |\n", TARGETS.iter().map(row).collect::<String>())
}

pub const MARKS: [&str; 2] = ["<!-- fuzz:begin -->\n", "<!-- fuzz:end -->\n"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_reads_back() {
        let all = BTreeMap::from([(TARGETS[0].to_owned(), [1_234_567, 10, 5, 9])]);
        assert_eq!(read(&write(&all)), all);
        let table = table(&all);
        assert!(table.contains("| 1,234,567 | 123,456 | 5 of 9 |"), "{table}");
        assert!(table.contains("| all | 1,234,567 |"));
    }
}
