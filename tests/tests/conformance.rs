//! One suite for all agents: mote, Debian's lxd-agent and Debian's incus-agent on the wire.

use mote_tests::conform::{self, Check, Miss, Seen, checks};
use mote_tests::prelude::*;

/// `MOTE_WRITE_DOCS=1` writes the page. `MOTE_COLUMNS` (part of a title) and `MOTE_ONLY` (part of a
/// claim or a group) select some checks; then the page is not compared.
#[test]
fn each_agent_matches_the_page() {
    let wanted = std::env::var("MOTE_COLUMNS").unwrap_or_default();
    let columns = Column::ALL.into_iter().filter(|column| column.title().contains(&wanted));
    let columns: Vec<_> = columns.collect();
    let checks = checks::all();
    // Two VMs at a time, because the checks spend half of the time waiting.
    let seen: Vec<_> = columns.chunks(2).flat_map(|two| look_at_once(two, &checks)).collect();
    let whole = seen.len() == Column::ALL.len() && std::env::var_os("MOTE_ONLY").is_none();
    let of_page = are_of_page();
    if whole && !of_page {
        skipped("Debian 12, for the page itself: the Go agents' cells are those of its packages");
    }
    let whole = whole && of_page;
    let page = conform::render(&checks, &seen, whole);
    for cell in &page.unknown {
        println!("not known in this run: {cell}");
    }
    if !page.unknown.is_empty() {
        println!(
            "{} cells of Go agents are not known, so the page is not compared",
            page.unknown.len()
        );
    }
    let whole = whole && page.unknown.is_empty();
    if whole {
        pages::write("results/conformance.md", &page.text);
    }
    assert!(page.unexplained.is_empty(), "without a reason:\n{}", page.unexplained.join("\n"));
    if whole {
        pages::hold("results/conformance.md", &page.text);
    }
}

/// Returns whether the Go agents are the versions that the page describes. Newer ones have fixed
/// some differences. Each difference needs a reason in any version.
fn are_of_page() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    release.lines().any(|line| line == "VERSION_CODENAME=bookworm")
}

fn look_at_once(columns: &[Column], checks: &[Check]) -> Vec<(Column, Seen)> {
    thread::scope(|scope| {
        let looks: Vec<_> = columns
            .iter()
            .map(|column| (*column, scope.spawn(|| conform::look(*column, checks))))
            .collect();
        looks
            .into_iter()
            .map(|(column, look)| (column, seen(column, checks, look.join())))
            .collect()
    })
}

/// Returns a column's results. A Go agent that did not connect in time is assumed to lack CPU time.
fn seen(column: Column, checks: &[Check], look: thread::Result<Seen>) -> Seen {
    look.unwrap_or_else(|_| {
        assert!(!column.is_mote(), "{}: no agent", column.title());
        let late = |check: &Check| {
            check.applies(column).then(|| Err(Miss::No("the agent was not there in time".into())))
        };
        checks.iter().map(late).collect()
    })
}
