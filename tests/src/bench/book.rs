//! The samples of a run, and why some are missing. `docs/results/bench.json` keeps one book per CPU
//! of the VM; a test fails if a book measured a mote that is too old.

use crate::prelude::*;

use super::page;
use super::rows::{Goal, Row, all, find};
use crate::pages::times;

/// Name in a book's description for the commit that was measured.
pub const COMMIT: &str = "commit of mote";
/// Name in a book's description for the older commit that was also measured.
pub const BEFORE: &str = "older commit of mote";
pub const CPU: &str = "CPU of the VM";
/// The CPU of the published figures: QEMU's default.
const DEFAULT_CPU: &str = "1 x qemu64";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub min: f64,
    /// Median; for an even number of samples, the mean of the middle two.
    pub median: f64,
    pub max: f64,
}

/// Measurements of one agent: for each row a value, or the reason why there is none.
pub type Found = Vec<(&'static str, Result<f64, String>)>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    agent: String,
    row: String,
    values: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Miss {
    pub agent: String,
    pub row: String,
    pub why: String,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Book {
    /// Description of the machine and the run: name, value.
    pub machine: Vec<(String, String)>,
    samples: Vec<Sample>,
    pub misses: Vec<Miss>,
}

impl Book {
    pub fn on(machine: Vec<(String, String)>) -> Self {
        Self { machine, ..Self::default() }
    }

    pub fn said(&self, name: &str) -> &str {
        let found = self.machine.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    pub fn add(&mut self, column: Column, found: Found) {
        for (row, value) in found {
            let (agent, row) = (column.title().to_owned(), row.to_owned());
            let mut known = self.samples.iter_mut();
            let known = known.find(|sample| sample.agent == agent && sample.row == row);
            // Round: a double with all its digits may read back differently.
            match (value.map(|value| (value * 1e6).round() / 1e6), known) {
                (Ok(value), Some(sample)) => sample.values.push(value),
                (Ok(value), None) => self.samples.push(Sample { agent, row, values: vec![value] }),
                (Err(why), _) => self.misses.push(Miss { agent, row, why }),
            }
        }
    }

    pub fn summary(&self, row: &str, column: Column) -> Option<Summary> {
        let of = |sample: &&Sample| sample.row == row && sample.agent == column.title();
        let mut sorted = self.samples.iter().find(of)?.values.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Summary { min, median: low.midpoint(high), max })
    }

    pub fn has(&self, row: &Row) -> bool {
        Column::ALL.iter().any(|column| self.summary(row.id, *column).is_some())
    }

    fn median(&self, row: &str, column: Column) -> Option<f64> {
        self.summary(row, column).map(|summary| summary.median)
    }

    /// Ratio by which mote is better than a Go agent of the same server, or than its older build.
    pub fn ratio(&self, row: &Row, theirs: Column) -> Option<f64> {
        let ratio = row.ratio(self.median(row.id, theirs.ours())?, self.median(row.id, theirs)?);
        ratio.is_finite().then_some(ratio)
    }

    /// True if mote reaches the row's goal under each server; `None` without goal or samples.
    pub fn reached(&self, row: &Row) -> Option<bool> {
        let known: Vec<bool> = match row.goal {
            Goal::None => return None,
            Goal::Times(wanted) => {
                let known = Column::GO.iter().filter_map(|theirs| self.ratio(row, *theirs));
                known.map(|ratio| ratio >= wanted).collect()
            }
            Goal::As(other) => {
                let columns = [Column::MoteLxd, Column::MoteIncus].into_iter();
                let pair = |column| self.median(row.id, column).zip(self.median(other, column));
                columns.filter_map(pair).map(|(value, other)| value <= other * 1.05).collect()
            }
        };
        (!known.is_empty()).then(|| known.iter().all(|reached| *reached))
    }

    /// Returns the ratio to the other agent's best round: load may slow down most rounds.
    fn least_ratio(&self, row: &Row, theirs: Column) -> Option<f64> {
        let (ours, other) = (self.median(row.id, theirs.ours())?, self.summary(row.id, theirs)?);
        let ratio = row.ratio(ours, other.min).min(row.ratio(ours, other.max));
        ratio.is_finite().then_some(ratio)
    }

    /// Returns a line for each ratio that is below `share` of the smallest recorded ratio.
    pub fn below(&self, share: f64, recorded: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in all().filter(|row| self.has(row)) {
            for theirs in Column::GO {
                let Some(was) = recorded.least_ratio(row, theirs) else { continue };
                let now = self.ratio(row, theirs);
                if now.is_none_or(|now| now < was * share) {
                    let (now, was) = (now.map_or("none".into(), times), times(was));
                    let beside = theirs.title();
                    lines.push(format!("{}, beside {beside}: {now}, recorded {was}", row.title));
                }
            }
        }
        lines
    }

    /// Writes a line for each row and agent, so that diffs are small.
    fn to_text(&self) -> String {
        fn lines<T: Serialize>(entries: &[T]) -> String {
            let line = |entry| serde_json::to_string(entry).expect("plain data");
            let lines = entries.iter().map(|entry| format!("\n    {}", line(entry)));
            lines.collect::<Vec<_>>().join(",")
        }
        let [machine, samples, misses] =
            [lines(&self.machine), lines(&self.samples), lines(&self.misses)];
        format!(
            "{{\n  \"machine\": [{machine}],\n  \"samples\": [{samples}],\n  \"misses\": [{misses}]\n}}"
        )
    }
}

#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct Results(BTreeMap<String, Book>);

impl Results {
    /// Reads `docs/results/bench.json`, if it exists. Ignores rows that no longer exist.
    pub fn load() -> Self {
        let text = fs::read_to_string(path("docs/results/bench.json")).unwrap_or_default();
        let mut results: Self = serde_json::from_str(&text).unwrap_or_default();
        for book in results.0.values_mut() {
            book.samples.retain(|sample| find(&sample.row).is_some());
            book.misses.retain(|miss| find(&miss.row).is_some());
        }
        results
    }

    pub fn keep(&mut self, book: Book) {
        self.0.insert(book.said(CPU).to_owned(), book);
    }

    pub fn of(&self, cpu: &str) -> Option<&Book> {
        self.0.get(cpu)
    }

    fn pages(&self) -> [(&'static str, String); 3] {
        let nothing = Book::default();
        let book = self.of(DEFAULT_CPU).unwrap_or(&nothing);
        let readme = fs::read_to_string(path("README.md")).expect("README");
        let books = self.0.iter().map(|(cpu, book)| format!("{cpu:?}: {}", book.to_text()));
        let books = books.collect::<Vec<_>>().join(",\n");
        [
            ("docs/results/bench.json", format!("{{{books}}}\n")),
            ("docs/results/bench.md", page::whole(book)),
            ("README.md", page::into_readme(&readme, book)),
        ]
    }

    pub fn write(&self) -> Result<(), String> {
        for (name, text) in self.pages() {
            fs::write(path(name), text).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }
}

fn path(name: &str) -> PathBuf {
    source::root().join(name)
}

#[cfg(test)]
pub(super) mod tests {

    use super::super::rows::MEASURED;
    use super::*;

    /// Returns a book in which mote has 2 and the Go agents 30, 24 and 20 in each measured row.
    pub(in crate::bench) fn book() -> Book {
        let mut book = Book::default();
        for row in &MEASURED {
            for (column, value) in Column::BENCHED.into_iter().zip([2.0, 30.0, 2.0, 24.0, 20.0]) {
                book.add(column, vec![(row.id, Ok(value)), (row.id, Ok(value))]);
            }
        }
        book.add(Column::IncusAgent, vec![("told", Err("404".into()))]);
        book.machine.push(("rounds".into(), "2".into()));
        book
    }

    #[test]
    fn reports_smaller_and_missing_ratios() {
        let recorded = book();
        assert_eq!(book().below(0.6, &recorded), Vec::<String>::new());
        let mut now = book();
        now.add(Column::MoteLxd, vec![("root", Ok(4.0)); 9]);
        let put = |sample: &Sample| sample.row == "put" && sample.agent == "incus-agent 6.0.4";
        now.samples.retain(|sample| !put(sample));
        let lines = [
            "`GET /`, p50, beside lxd-agent 5.0.2: 7.50×, recorded 15.0×",
            "SFTP, 16 MiB put, beside incus-agent 6.0.4: none, recorded 0.08×",
        ];
        assert_eq!(now.below(0.6, &recorded), lines);
    }

    const MAX_AGE: u32 = 20;

    /// Returns the number of commits to `agent/` since `commit`; `None` without a git history.
    fn age(commit: &str) -> Option<u32> {
        let range = format!("{commit}..HEAD");
        let mut git = Command::new("git");
        git.current_dir(path("")).args(["rev-list", "--count", &range, "--", "agent"]);
        let output = git.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    }

    fn kept() -> Option<Results> {
        let results = Some(Results::load()).filter(|results| *results != Results::default());
        if results.is_none() {
            skipped("docs/results/bench.json, which scripts/bench makes on a quiet machine");
        }
        results
    }

    #[test]
    fn the_pages_match_the_results() {
        let Some(results) = kept() else { return };
        for (name, text) in results.pages() {
            let kept = fs::read_to_string(path(name)).unwrap();
            assert!(
                kept == text,
                "{name} differs from docs/results/bench.json; run scripts/bench --again"
            );
        }
    }

    #[test]
    fn the_results_are_recent_and_complete() {
        let Some(results) = kept() else { return };
        let book = results.of(DEFAULT_CPU).expect("a book");
        for row in all() {
            assert!(book.summary(row.id, Column::MoteLxd).is_some(), "no sample of {}", row.title);
        }
        let commit = book.said(COMMIT);
        match age(commit) {
            Some(age) => assert!(
                age <= MAX_AGE,
                "docs/results/bench.json was measured {age} commits to agent/ ago ({commit}); run scripts/bench"
            ),
            None => {
                skipped(&format!("the age of docs/results/bench.json: no history back to {commit}"))
            }
        }
    }
}
