//! Reads and writes `docs/results/bench.json`: the samples of all pages, one book per CPU of the
//! VM. A test fails if the agent they were measured on is too old.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::book::{Book, CPU};
use super::page;
use crate::source;

/// The CPU of the pages: QEMU's default.
const DEFAULT_CPU: &str = "1 x qemu64";

#[derive(Debug, Default, PartialEq)]
pub struct Results(BTreeMap<String, Book>);

impl Results {
    /// Reads `docs/results/bench.json`; empty if it does not exist.
    pub fn load() -> Self {
        let text = std::fs::read_to_string(path("docs/results/bench.json")).unwrap_or_default();
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let json: Value = serde_json::from_str(text).unwrap_or_default();
        let books = json.as_object().into_iter().flatten();
        Self(books.map(|(cpu, book)| (cpu.clone(), Book::from_json(book))).collect())
    }

    pub fn keep(&mut self, book: Book) {
        self.0.insert(book.said(CPU).to_owned(), book);
    }

    pub fn of(&self, cpu: &str) -> Option<&Book> {
        self.0.get(cpu)
    }

    /// Writes a line for each row and agent, so that diffs are small.
    fn to_text(&self) -> String {
        let book = |(cpu, book): (&String, &Book)| {
            let json = book.to_json();
            let lines = |name: &str| {
                let entries = json[name].as_array().into_iter().flatten();
                entries.map(|entry| format!("\n    {entry}")).collect::<Vec<_>>().join(",")
            };
            let names = ["machine", "samples", "misses"];
            let parts = names.map(|name| format!("  {}: [{}]", Value::from(name), lines(name)));
            format!("{}: {{\n{}\n}}", Value::from(cpu.as_str()), parts.join(",\n"))
        };
        let books: Vec<_> = self.0.iter().map(book).collect();
        format!("{{{}}}\n", books.join(",\n"))
    }

    pub fn pages(&self) -> [(&'static str, String); 3] {
        let nothing = Book::default();
        let book = self.of(DEFAULT_CPU).unwrap_or(&nothing);
        let readme = std::fs::read_to_string(path("README.md")).expect("README");
        [
            ("docs/results/bench.json", self.to_text()),
            ("docs/results/bench.md", page::whole(book)),
            ("README.md", page::into_readme(&readme, book)),
        ]
    }

    pub fn write(&self) -> Result<(), String> {
        for (name, text) in self.pages() {
            std::fs::write(path(name), text).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }
}

fn path(name: &str) -> PathBuf {
    source::root().join(name)
}

#[cfg(test)]
mod tests {
    use super::super::book::COMMIT;
    use std::process::Command;

    use super::*;

    /// The number of commits to `agent/` after which the figures are too old.
    const MAX_AGE: u32 = 20;

    /// Returns the number of commits to `agent/` since then; `None` without a git history.
    fn age(commit: &str) -> Option<u32> {
        let range = format!("{commit}..HEAD");
        let mut git = Command::new("git");
        git.current_dir(path("")).args(["rev-list", "--count", &range, "--", "agent"]);
        let output = git.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    }

    /// Returns the results; reports a skipped test if there are none.
    fn kept() -> Option<Results> {
        let results = Some(Results::load()).filter(|results| *results != Results::default());
        if results.is_none() {
            crate::skipped("docs/results/bench.json, which scripts/bench makes on a quiet machine");
        }
        results
    }

    #[test]
    fn the_pages_match_the_results() {
        let Some(results) = kept() else { return };
        for (name, text) in results.pages() {
            let kept = std::fs::read_to_string(path(name)).unwrap();
            assert!(
                kept == text,
                "{name} differs from docs/results/bench.json; run scripts/bench --again"
            );
        }
    }

    #[test]
    fn the_results_are_recent() {
        let Some(results) = kept() else { return };
        let commit = results.of(DEFAULT_CPU).expect("a book").said(COMMIT);
        match age(commit) {
            Some(age) => assert!(
                age <= MAX_AGE,
                "docs/results/bench.json was measured {age} commits to agent/ ago ({commit}); run scripts/bench"
            ),
            None => crate::skipped(&format!(
                "the age of docs/results/bench.json: no history back to {commit}"
            )),
        }
    }
}
