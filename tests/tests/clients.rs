//! Third-party clients against every agent: mote over sockets and in VMs, Debian's Go agents in
//! VMs. `MOTE_COLUMNS` (part of an agent's name), `MOTE_ONLY` (part of a client's) and `MOTE_PART`
//! (`1/3`: every third client) select some. `MOTE_WRITE_DOCS=1` writes `docs/results/clients.md`,
//! with results that this run lacks from `docs/results/clients.json`.

use mote_tests::clients::page::Record;
use mote_tests::clients::{CLIENTS, Client, Subject, page, run_all};
use mote_tests::prelude::*;

#[test]
fn each_agent_matches_the_page() {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let (columns, only, part) =
        (variable("MOTE_COLUMNS"), variable("MOTE_ONLY"), variable("MOTE_PART"));
    let again = [Column::MoteLxd, Column::MoteIncus].map(Subject::booted);
    let clients = share(&part, &only);
    let agents: Vec<_> = Subject::COLUMNS
        .into_iter()
        .chain(again)
        .filter(|subject| subject.name().contains(&columns))
        .collect();
    let seen = run_all(&agents, &clients);
    let mut record = Record::load();
    if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
        seen.iter().for_each(|(subject, seen)| record.keep(*subject, seen, &clients));
        record.store();
        let made = page::render(&record);
        pages::write(page::NAME, &made.text);
        assert!(made.unexplained.is_empty(), "without a reason:\n{}", made.unexplained.join("\n"));
    }
    let differing = record.differences(&seen, &clients);
    assert!(
        differing.is_empty(),
        "docs/results/clients.md says otherwise:\n{}",
        differing.join("\n")
    );
}

/// Returns the clients whose name contains `only`; of these, every third with `part` `1/3`.
fn share(part: &str, only: &str) -> Vec<&'static Client> {
    let number = |text: &str| text.parse::<usize>().expect("MOTE_PART is NUMBER/SHARES");
    let (first, step) =
        part.split_once('/').map_or((1, 1), |(first, step)| (number(first), number(step)));
    let named = CLIENTS.iter().filter(|client| client.heading.contains(only));
    named.skip(first - 1).step_by(step).collect()
}
