//! Writes the results of all agents side by side, as `docs/conformance.md`.

use std::fmt::Write;

use super::reasons::{REASONS, Reason};
use super::{Check, Claim, Column, Miss, Seen};
use crate::pages::notes::{Notes, sentence};

/// The generated page, and the gaps in the reasons.
#[derive(Clone, Debug)]
pub struct Table {
    /// Text of the page.
    pub page: String,
    /// Cells without a listed reason, and reasons without a cell.
    pub unexplained: Vec<String>,
}

const HEAD: &str = "\
# Conformance

Written by `scripts/test` (`tests/tests/conformance.rs`), which boots a VM for each column and checks
each row on the wire; it fails if this page and what it sees are not the same. The checks
(`tests/src/conform/`) are written from [the protocol pages](protocol/README.md), not from any agent; P§n
is the section there that a row comes from. Rows say what the agents of a *current* LXD or Incus do; Debian's agents are older.

**yes**: as the row says. **no**: not there, or an error instead. **differs**: something else happens.
**sometimes**: not always. **-**: the server of this column has no such thing. Numbers are notes below the table.
";

/// Renders the page; if it is `whole`, each reason is for something that was seen.
#[must_use]
pub fn render(checks: &[Check], columns: &[(Column, Seen)], whole: bool) -> Table {
    let mut notes = Notes::default();
    let mut unexplained = Vec::new();
    let mut used = vec![false; REASONS.len()];
    let mut body = String::new();
    let mut group = "";
    let mut words: Vec<Vec<&str>> = columns.iter().map(|_| Vec::new()).collect();
    for (row, check) in checks.iter().enumerate() {
        if check.group != group {
            group = check.group;
            let titles: Vec<_> = columns.iter().map(|(column, _)| column.title()).collect();
            let _fits =
                write!(body, "\n## {group}\n\n| behaviour | source | {} |\n", titles.join(" | "));
            let _fits = writeln!(body, "| --- | --- |{}", " --- |".repeat(columns.len()));
        }
        let _fits = write!(body, "| {} | {} |", check.claim, check.source);
        for ((column, seen), words) in columns.iter().zip(&mut words) {
            let cell = cell(check, *column, seen[row].as_ref(), &mut used, &mut unexplained);
            let (word, note) = cell;
            words.push(word);
            let number = note.map(|note| notes.number(note));
            let number = number.map_or(String::new(), |number| format!(" {number}"));
            let _fits = write!(body, " {word}{number} |");
        }
        body.push('\n');
    }
    for (reason, used) in REASONS.iter().zip(used) {
        if !used && whole {
            unexplained.push(format!("a reason for what was not seen: {}", reason.claim));
        }
    }
    let page = format!("{HEAD}{}{body}{}", sums(columns, &words), notes.list());
    Table { page, unexplained }
}

fn cell(
    check: &Check,
    column: Column,
    seen: Option<&Claim>,
    used: &mut [bool],
    unexplained: &mut Vec<String>,
) -> (&'static str, Option<String>) {
    let fits = |reason: &Reason| reason.claim == check.claim && reason.columns.contains(&column);
    let reason = REASONS.iter().position(fits);
    if let (Some(_), Some(at)) = (seen, reason.filter(|at| REASONS[*at].sometimes)) {
        used[at] = true;
        return ("sometimes", Some(REASONS[at].why.into()));
    }
    let (word, text) = match seen {
        None => return ("-", None),
        Some(Ok(())) => return ("yes", None),
        Some(Err(Miss::No(text))) => ("no", text),
        Some(Err(Miss::Differs(text))) => ("differs", text),
    };
    let Some(at) = reason else {
        unexplained.push(format!("{}: {}: {word}: {text}", column.title(), check.claim));
        return (word, Some(text.clone()));
    };
    used[at] = true;
    (word, Some(format!("{} {}", sentence(text), REASONS[at].why)))
}

/// The table of counts: cells of each kind by column.
fn sums(columns: &[(Column, Seen)], words: &[Vec<&str>]) -> String {
    let kinds = ["yes", "differs", "no", "sometimes"];
    let mut sums =
        format!("\n| | {} |\n| --- |{}\n", kinds.join(" | "), " --- |".repeat(kinds.len()));
    for ((column, _), words) in columns.iter().zip(words) {
        let count = |kind: &&str| words.iter().filter(|word| *word == kind).count().to_string();
        let counts: Vec<_> = kinds.iter().map(count).collect();
        let _fits = writeln!(sums, "| {} | {} |", column.title(), counts.join(" | "));
    }
    sums
}
