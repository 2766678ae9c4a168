//! Renders `docs/clients.md`, and parses it, so that a run of a few agents can be compared with it.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::reasons::{NOT_RUN, REASONS, Reason};
use super::{CLIENTS, Cells, Client, NOT_HERE, Seen, Subject, cells};
use crate::pages::notes::{Notes, sentence};

/// File name of the page in `docs/`.
pub const NAME: &str = "clients.md";

/// The generated page, and the gaps in the reasons.
#[derive(Clone, Debug)]
pub struct Page {
    /// Text of the page.
    pub text: String,
    /// Cells without a listed reason, and reasons without a cell.
    pub unexplained: Vec<String>,
}

const HEAD: &str = "\
# Clients

Written by `scripts/clients` (`tests/tests/clients_vm.rs`): programs that nobody here wrote, as they are, used
on mote and on Debian's Go agents by small programs in `tests/clients`. It fails if this page and what it
sees are not the same. mote runs on this machine with unix sockets for its vsock, and again in a VM, where
it has to show the same; the Go agents run in VMs. A guest's clients reach the devlxd socket of a VM
through a bridge; some run in the VM itself. `scripts/test` holds mote's columns on sockets.

The seconds under a heading are what mote takes with two processors, on sockets where it is not in the
VM; a Go agent in an emulated VM takes four to ten times as long.

**yes**: as it should be by the RFC, by docs/protocol, or by what the servers' own agents do.
**differs**: something else; the number is a note below. **sometimes**: not always. **-**: not for this
server, or asked in the column of a newer LXD.
";

/// Renders the page from the results of its columns.
#[must_use]
pub fn render(columns: &[(Subject, Seen)]) -> Page {
    let cells = cells(columns);
    let mut notes = Notes::default();
    let mut body = String::new();
    for client in CLIENTS {
        let titles: Vec<_> = columns.iter().map(|(subject, _)| subject.title()).collect();
        let _fits = write!(
            body,
            "\n## {}\n\n{} About {} s.\n\n| case | {} |\n| --- |{}\n",
            client.heading,
            client.about,
            client.seconds,
            titles.join(" | "),
            " --- |".repeat(titles.len())
        );
        for case in order(client.heading, columns) {
            let _fits = write!(body, "| {} |", escaped(case));
            for title in &titles {
                let cell = cells.get(&(client.heading.into(), case.into(), title));
                let shown = cell.map_or("-".into(), |seen| {
                    match meaning(client.heading, case, title, seen) {
                        (word, None) => word.to_owned(),
                        (word, Some(note)) => format!("{word} {}", notes.number(note)),
                    }
                });
                let _fits = write!(body, " {shown} |");
            }
            body.push('\n');
        }
    }
    let text = format!("{HEAD}{}{body}{}{}", sums(columns), notes.list(), not_run());
    Page { text, unexplained: unexplained(&cells, columns) }
}

/// The cases of a client in their order.
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

fn reason(heading: &str, case: &str, title: &str) -> Option<&'static Reason> {
    REASONS.iter().find(|reason| reason.fits(heading, case, title))
}

/// Word and note of a cell.
fn meaning(heading: &str, case: &str, title: &str, seen: &str) -> (&'static str, Option<String>) {
    let reason = reason(heading, case, title);
    match reason {
        Some(reason) if reason.sometimes => return ("sometimes", Some(reason.why.into())),
        _ if seen == "ok" => return ("yes", None),
        _ => {}
    }
    if let Some(why) = seen.strip_prefix(NOT_HERE) {
        return ("not run", Some(sentence(why)));
    }
    let why = reason.map(|reason| format!(" {}", reason.why)).unwrap_or_default();
    ("differs", Some(format!("{}{why}", sentence(seen))))
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Messages about differences without a reason, and reasons without a difference.
fn unexplained(cells: &Cells, columns: &[(Subject, Seen)]) -> Vec<String> {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for ((heading, case, title), seen) in cells {
        let at = REASONS.iter().position(|reason| reason.fits(heading, case, title));
        match at {
            Some(at) if seen != "ok" || REASONS[at].sometimes => {
                used.insert(at);
            }
            None if seen != "ok" && !seen.starts_with(NOT_HERE) => {
                found.push(format!("{title}: {heading}: {case}: {seen}"));
            }
            Some(_) | None => {}
        }
    }
    if columns.len() == Subject::COLUMNS.len() {
        let idle = (0..REASONS.len()).filter(|at| !used.contains(at));
        found.extend(idle.map(|at| format!("a reason for what was not seen: {:?}", REASONS[at])));
    }
    found
}

/// The table of counts: cells of each kind by column.
fn sums(columns: &[(Subject, Seen)]) -> String {
    let kinds = ["yes", "differs", "sometimes", "not run"];
    let mut sums =
        format!("\n| | {} |\n| --- |{}\n", kinds.join(" | "), " --- |".repeat(kinds.len()));
    for (subject, seen) in columns {
        let words: Vec<_> = seen
            .iter()
            .map(|((heading, case), seen)| meaning(heading, case, subject.title(), seen).0)
            .collect();
        let count = |kind: &&str| words.iter().filter(|word| *word == kind).count().to_string();
        let counts: Vec<_> = kinds.iter().map(count).collect();
        let _fits = writeln!(sums, "| {} | {} |", subject.title(), counts.join(" | "));
    }
    sums
}

fn not_run() -> String {
    let mut text = "\n## Not run\n\n".to_owned();
    for (what, why) in NOT_RUN {
        let _fits = writeln!(text, "- **{what}**: {why}");
    }
    text
}

/// Parses the cells of a page: `yes`, or another word and its note.
#[must_use]
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
#[must_use]
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

#[cfg(test)]
mod tests {
    use super::super::Played;
    use super::*;

    fn seen(what: &str) -> Vec<(Subject, Seen)> {
        let case = (CLIENTS[0].heading, "a case | of it".to_owned());
        vec![(Subject::Sockets(Played::Incus), vec![(case, what.to_owned())])]
    }

    #[test]
    fn a_page_agrees_with_what_it_was_made_from_and_with_nothing_else() {
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
    fn what_differs_needs_a_reason() {
        assert_eq!(render(&seen("it is late")).unexplained.len(), 1);
        assert!(render(&seen("ok")).unexplained.is_empty());
    }
}
