//! Renders `docs/results/clients.md`, and parses it, so that a run of a few agents can be compared
//! with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use mote_checks::{Reason, Table, Verdict, find, line, reasons};

use super::{CLIENTS, Client, Subject};

/// File name of the page in `docs/`.
pub const NAME: &str = "results/clients.md";

/// The generated page, and the gaps in the reasons.
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

pub fn render(columns: &[(Subject, Seen)]) -> Page {
    let cells = cells(columns);
    let titles: Vec<_> = columns.iter().map(|(subject, _)| subject.title()).collect();
    let mut table = Table::new(&REASONS, &titles);
    let mut body = String::new();
    for client in CLIENTS.iter() {
        let Client { heading, about, seconds, .. } = client;
        body += &format!("\n## {heading}\n\n{about} About {seconds} s.\n\n{}", table.head("case"));
        for case in order(heading, columns) {
            let seen = |title| cells.get(&((*heading).into(), case.into(), title));
            let seen: Vec<_> = titles.iter().map(|title| Some(verdict(seen(*title)?))).collect();
            body += &table.row(&[&line(case)], (heading, case), &seen);
        }
    }
    let sums = table.sums(&["yes", "differs", "sometimes", "not run"]);
    let notes = table.notes.list();
    let text = format!("{HEAD}{sums}{body}\n## Notes\n{notes}\n## Not run\n\n{NOT_RUN}");
    Page { text, unexplained: table.unexplained(columns.len() == Subject::COLUMNS.len()) }
}

fn verdict(seen: &str) -> Verdict {
    match seen.strip_prefix(NOT_HERE) {
        Some(why) => Verdict::NotRun(why.into()),
        None if seen == "ok" => Verdict::Holds(String::new()),
        None => Verdict::Differs(seen.into()),
    }
}

/// Word and note of a cell.
fn meaning(heading: &str, case: &str, title: &str, seen: &str) -> (&'static str, Option<String>) {
    Table::meaning(find(&REASONS, heading, case, title), &verdict(seen))
}

fn order<'a>(heading: &str, columns: &'a [(Subject, Seen)]) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for (_, seen) in columns {
        let own = seen.iter().filter(|((of, _), _)| *of == heading);
        for ((_, case), _) in own {
            if !all.contains(&case.as_str()) {
                all.push(case);
            }
        }
    }
    all
}

/// Parses the cells of a page: `yes`, or another word and its note.
pub fn parse(page: &str) -> Cells {
    let (body, rest) = page.split_once("\n## Notes\n").unwrap_or((page, ""));
    let notes: Vec<_> = rest
        .lines()
        .map_while(|line| match line.split_once(". ") {
            Some((number, note)) if number.parse::<usize>().is_ok() => Some(Some(note)),
            _ if line.is_empty() => Some(None),
            _ => None,
        })
        .flatten()
        .collect();
    let mut cells = Cells::new();
    let (mut heading, mut titles) = ("", Vec::new());
    for line in body.lines() {
        if let Some(next) = line.strip_prefix("## ") {
            heading = next;
        }
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else {
            continue;
        };
        let mut parts = row.split(" | ");
        let case = parts.next().unwrap_or_default();
        if case == "case" {
            titles = parts.filter_map(known).collect();
        } else if !heading.is_empty() && case != "---" {
            for (title, shown) in titles.iter().zip(parts).filter(|(_, shown)| *shown != "-") {
                let (word, number) = shown.rsplit_once(' ').unwrap_or((shown, ""));
                let note = number.parse::<usize>().ok().and_then(|number| notes.get(number - 1));
                let said = note.map_or(word.to_owned(), |note| format!("{word}: {note}"));
                cells.insert((heading.into(), case.replace("\\|", "|"), title), said);
            }
        }
    }
    cells
}

fn known(title: &str) -> Option<&'static str> {
    Subject::COLUMNS.into_iter().map(Subject::title).find(|known| *known == title)
}

/// Differences between a run of these clients on some agents and a page.
pub fn differences(page: &str, columns: &[(Subject, Seen)], clients: &[&Client]) -> Vec<String> {
    let said = parse(page);
    let mut found = Vec::new();
    for (subject, seen) in columns {
        let mut left: BTreeSet<_> = said
            .keys()
            .filter(|(heading, _, title)| {
                let ran =
                    |client: &&Client| client.heading == heading && client.speaks_to(*subject);
                clients.iter().any(ran) && *title == subject.title()
            })
            .map(|(heading, case, _)| (heading.clone(), case.clone()))
            .collect();
        for ((heading, case), what) in seen {
            left.remove(&((*heading).into(), case.clone()));
            let is = match meaning(heading, case, subject.title(), what) {
                (word, None) => word.to_owned(),
                (word, Some(note)) => format!("{word}: {note}"),
            };
            let should = said.get(&((*heading).into(), case.clone(), subject.title()));
            if !what.starts_with(NOT_HERE) && should != Some(&is) {
                let should = should.map_or("nothing", String::as_str);
                found.push(format!(
                    "{}: {heading}: {case}: {is}; the page has {should}",
                    subject.name()
                ));
            }
        }
        // A case that cannot be run here may replace others of its client.
        let skipped = |heading: &String| {
            seen.iter().any(|((of, _), what)| of == heading && what.starts_with(NOT_HERE))
        };
        let missing = left.into_iter().filter(|(heading, _)| !skipped(heading));
        found.extend(missing.map(|(heading, case)| {
            format!("{}: {heading}: {case}: not seen; the page has it", subject.name())
        }));
    }
    found
}

/// True if there is a reason for a case in a column.
pub fn explained(heading: &str, case: &str, title: &str) -> bool {
    find(&REASONS, heading, case, title).is_some()
}

pub static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));

/// Clients that could not be run, and the reason.
pub const NOT_RUN: &str = include_str!("not_run.md");

/// Results by heading and case, in the order of the output: `ok` or something else.
pub type Seen = Vec<((&'static str, String), String)>;

/// Prefix of a case that this machine cannot run; the reason follows.
pub const NOT_HERE: &str = "not here: ";

pub type Cells = BTreeMap<(String, String, &'static str), String>;

pub fn cells(columns: &[(Subject, Seen)]) -> Cells {
    let mut cells = Cells::new();
    for (subject, seen) in columns {
        for ((heading, case), what) in seen {
            let cell = ((*heading).into(), case.clone(), subject.title());
            let before = cells.insert(cell, what.clone());
            assert!(before.is_none(), "two cases {heading}: {case}");
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::Played;
    use super::*;

    fn seen(what: &str) -> Vec<(Subject, Seen)> {
        let case = (CLIENTS[0].heading, "a case | of it".to_owned());
        vec![(Subject::Sockets(Played::Incus), vec![(case, what.to_owned())])]
    }

    #[test]
    fn a_page_matches_only_its_own_results() {
        for what in ["ok", "it is late"] {
            let page = render(&seen(what)).text;
            let differing = |other| differences(&page, &seen(other), &[&CLIENTS[0]]);
            assert_eq!(differing(what), Vec::<String>::new());
            assert_eq!(differing("another").len(), 1);
            assert_eq!(differing("not here: no device"), Vec::<String>::new());
            let nothing = [(Subject::Sockets(Played::Incus), Seen::new())];
            assert_eq!(differences(&page, &nothing, &[&CLIENTS[0]]).len(), 1);
        }
    }

    #[test]
    fn a_difference_needs_a_reason() {
        assert_eq!(render(&seen("it is late")).unexplained.len(), 1);
        assert!(render(&seen("ok")).unexplained.is_empty());
    }
}
