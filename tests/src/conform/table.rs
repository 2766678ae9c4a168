//! Writes the results of all agents side by side, as `docs/conformance.md`.

use std::fmt::Write;

use mote_checks::{Table, Verdict};

use super::reasons::REASONS;
use super::{Check, Claim, Column, Miss, Seen};

/// The generated page, and the gaps in the reasons.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its text.
    pub text: String,
    /// Cells without a listed reason, and reasons without a cell.
    pub unexplained: Vec<String>,
}

const HEAD: &str = "\
# Conformance

Written by `scripts/test` (`tests/tests/conformance.rs`), which boots a VM for each column and checks
each row on the wire; it fails if this page and what it sees are not the same. The checks
(`tests/src/conform/`) are written from [the protocol pages](protocol/README.md), not from any agent; P§n
is the section there that a row comes from. Rows say what the agents of a *current* LXD or Incus do; Debian's agents are older.
Those by mote-host are what its user does to the VM: the Go agents' cells say that the host's half is right, too.

**yes**: as the row says. **no**: not there, or an error instead. **differs**: something else happens.
**sometimes**: not always. **-**: the server of this column has no such thing. Numbers are notes below the table.
";

/// Renders the page; if it is `whole`, each reason is for something that was seen.
#[must_use]
pub fn render(checks: &[Check], columns: &[(Column, Seen)], whole: bool) -> Page {
    let titles: Vec<_> = columns.iter().map(|(column, _)| column.title()).collect();
    let mut table = Table::new(REASONS, &titles);
    let (mut body, mut group) = (String::new(), "");
    for (row, check) in checks.iter().enumerate() {
        if check.group != group {
            group = check.group;
            let _fits = write!(body, "\n## {group}\n\n{}", table.head("behaviour | source"));
        }
        let _fits = write!(body, "| {} | {} |", check.claim, check.source);
        for (column, (_, seen)) in columns.iter().enumerate() {
            let verdict = seen[row].as_ref().map(verdict);
            let cell = table.cell(column, (check.group, check.claim), verdict.as_ref());
            let _fits = write!(body, " {cell} |");
        }
        body.push('\n');
    }
    let sums = table.sums(&["yes", "differs", "no", "sometimes"]);
    let text = format!("{HEAD}{sums}{body}\n## Notes\n{}", table.notes.list());
    Page { text, unexplained: table.unexplained(whole) }
}

fn verdict(claim: &Claim) -> Verdict {
    match claim {
        Ok(()) => Verdict::Holds(String::new()),
        Err(Miss::No(text)) => Verdict::Fails(text.clone()),
        Err(Miss::Differs(text)) => Verdict::Differs(text.clone()),
    }
}
