//! Stores the results of each agent under `target`, so that the page can be made from runs of all
//! agents at once or one by one.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{CLIENTS, Client, Place, Seen, Subject};
use crate::{Column, put, tool};

/// Replaces the results of these clients.
pub fn keep(subject: Subject, seen: &Seen, clients: &[&'static Client]) {
    let directory = directory();
    std::fs::create_dir_all(&directory).expect("a directory");
    put(file(&directory, subject), text(&merged(load(&directory, subject), seen, clients)));
}

/// The page's columns; `None` if one of its agents has no results on this machine.
pub fn columns() -> Option<Vec<(Subject, Seen)>> {
    let directory = directory();
    let all = Subject::COLUMNS.into_iter().map(|subject| {
        let mut seen = load(&directory, subject);
        let empty = seen.is_empty();
        // Clients that run in the VM itself are in the column with the same title.
        if let Some(booted) = booted(subject) {
            let again = load(&directory, booted).into_iter();
            seen.extend(again.filter(|((heading, _), _)| is_inside(heading)));
        }
        (!empty).then_some((subject, seen))
    });
    all.collect()
}

/// The VM with the same agent and flavour of host, if `subject` is not in a VM.
fn booted(subject: Subject) -> Option<Subject> {
    let title = subject.title();
    let known = [Column::MoteLxd, Column::MoteIncus].map(Subject::Booted);
    known.into_iter().find(|booted| *booted != subject && booted.title() == title)
}

fn is_inside(heading: &str) -> bool {
    CLIENTS.iter().any(|client| client.heading == heading && client.place == Place::Inside)
}

fn directory() -> PathBuf {
    tool("MOTE_CLIENTS", "target/clients").join("seen")
}

fn file(directory: &Path, subject: Subject) -> PathBuf {
    directory.join(subject.name().replace(['/', ' '], "-"))
}

fn load(directory: &Path, subject: Subject) -> Seen {
    let mut seen = parse(&std::fs::read_to_string(file(directory, subject)).unwrap_or_default());
    let still = |heading: &str| {
        CLIENTS.iter().any(|client| client.heading == heading && client.speaks_to(subject))
    };
    seen.retain(|((heading, _), _)| still(heading));
    seen
}

/// The old cases of other clients and all new ones, in the page's order.
fn merged(old: Seen, new: &Seen, clients: &[&'static Client]) -> Seen {
    let again = |heading: &str| clients.iter().any(|client| client.heading == heading);
    let mut all: Seen = old.into_iter().filter(|((heading, _), _)| !again(heading)).collect();
    all.extend(new.iter().cloned());
    all.sort_by_key(|((heading, _), _)| CLIENTS.iter().position(|of| of.heading == *heading));
    all
}

/// Writes a line for each case, with tabs between its fields; `cases` has removed other tabs.
fn text(seen: &Seen) -> String {
    let mut text = String::new();
    for ((heading, case), what) in seen {
        let _fits = writeln!(text, "{heading}\t{case}\t{what}");
    }
    text
}

/// Parses what [`text`] writes. Ignores cases of clients that no longer exist.
fn parse(text: &str) -> Seen {
    let lines = text.lines().filter_map(|line| {
        let (heading, rest) = line.split_once('\t')?;
        let (case, what) = rest.split_once('\t')?;
        let client = CLIENTS.iter().find(|client| client.heading == heading)?;
        Some(((client.heading, case.to_owned()), what.to_owned()))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(client: usize, name: &str, what: &str) -> ((&'static str, String), String) {
        ((CLIENTS[client].heading, name.to_owned()), what.to_owned())
    }

    #[test]
    fn stored_results_read_back() {
        let seen = vec![case(0, "a case | of it", "ok"), case(1, "another", "it is: late")];
        assert_eq!(parse(&text(&seen)), seen);
    }

    #[test]
    fn a_repeated_client_replaces_only_its_own_cases() {
        let old = vec![case(0, "gone", "ok"), case(1, "stays", "ok")];
        let new = vec![case(0, "new", "late")];
        let all = merged(old, &new, &[&CLIENTS[0]]);
        assert_eq!(all, [case(0, "new", "late"), case(1, "stays", "ok")]);
    }

    #[test]
    fn mote_in_a_vm_shares_the_title_of_mote_on_sockets() {
        for subject in Subject::COLUMNS {
            assert!(booted(subject).is_none_or(|booted| booted.title() == subject.title()));
        }
        assert_eq!(Subject::COLUMNS.into_iter().filter_map(booted).count(), 2);
    }
}
