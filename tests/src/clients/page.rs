//! Renders `docs/results/clients.md`.

use std::sync::LazyLock;

use mote_checks::{Reason, Table, Verdict, find, line, reasons};

use super::record::Record;
use super::{CLIENTS, Client, Subject};

pub const NAME: &str = "results/clients.md";

#[derive(Clone, Debug)]
pub struct Page {
    pub text: String,
    /// Cells without a listed reason, and reasons without a cell.
    pub unexplained: Vec<String>,
}

const HEAD: &str = "\
# Clients

`scripts/clients` (`tests/tests/clients_vm.rs`) runs unmodified third-party programs against mote and Debian's Go agents. It fails
if this page differs from what it sees. mote runs on the build machine with unix sockets instead of vsock, and again in a VM; both
must agree. The Go agents run in VMs, where most programs reach devlxd through a bridge. The seconds below a heading are mote's on two
CPUs; a Go agent in an emulated VM takes four to ten times as long.

**yes**: as the RFC, the protocol pages or the server's own agent. **differs**: something else; the number is a note below.
**sometimes**: not always. **-**: does not apply to this server, or covered by the column of a newer LXD.
";

pub fn render(record: &Record) -> Page {
    let titles = Subject::COLUMNS.map(|subject| subject.column.title());
    let mut table = Table::new(&REASONS, &titles);
    let mut body = String::new();
    for Client { heading, about, seconds, .. } in CLIENTS.iter() {
        body += &format!("\n## {heading}\n\n{about} About {seconds} s.\n\n{}", table.head("case"));
        for row in record.0.iter().filter(|row| row.client == *heading) {
            let seen = titles.map(|title| row.seen.get(title).map(|what| verdict(what)));
            body += &table.row(&[&line(&row.case)], (heading, &row.case), &seen);
        }
    }
    let sums = table.sums(&["yes", "differs", "sometimes", "not run"]);
    let notes = table.notes.list();
    let text = format!("{HEAD}{sums}{body}\n## Notes\n{notes}\n## Not run\n\n{NOT_RUN}");
    Page { text, unexplained: table.unexplained(true) }
}

fn verdict(seen: &str) -> Verdict {
    match seen.strip_prefix(NOT_HERE) {
        Some(why) => Verdict::NotRun(why.into()),
        None if seen == "ok" => Verdict::Holds(String::new()),
        None => Verdict::Differs(seen.into()),
    }
}

/// The word of a cell, and its note.
pub(super) fn meaning(heading: &str, case: &str, title: &str, seen: &str) -> String {
    match Table::meaning(find(&REASONS, heading, case, title), &verdict(seen)) {
        (word, None) => word.to_owned(),
        (word, Some(note)) => format!("{word}: {note}"),
    }
}

pub fn explained(heading: &str, case: &str, title: &str) -> bool {
    find(&REASONS, heading, case, title).is_some()
}

pub static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));

/// Clients that could not be run, and the reason.
const NOT_RUN: &str = include_str!("not_run.md");

/// Results by heading and case, in the order of the output: `ok` or something else.
pub type Seen = Vec<((&'static str, String), String)>;

/// Prefix of a case that this machine cannot run; the reason follows.
pub const NOT_HERE: &str = "not here: ";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::file;

    #[test]
    fn the_page_shows_the_record_and_each_difference_has_a_reason() {
        let page = render(&Record::load());
        file::write(NAME, &page.text);
        file::hold(NAME, &page.text);
        assert_eq!(page.unexplained, Vec::<String>::new());
    }
}
