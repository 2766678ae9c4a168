//! Third-party clients against mote over sockets, for `docs/results/clients.md`. `MOTE_ONLY` (part
//! of a client's name) selects some.

use mote_tests::clients::record::Record;
use mote_tests::clients::{CLIENTS, Subject, run_all};

#[test]
fn mote_matches_the_page() {
    let only = std::env::var("MOTE_ONLY").unwrap_or_default();
    let wanted: Vec<_> = CLIENTS.iter().filter(|client| client.heading.contains(&only)).collect();
    let on_sockets: Vec<_> =
        Subject::COLUMNS.into_iter().filter(|subject| !subject.in_vm).collect();
    let seen = run_all(&on_sockets, &wanted);
    let differing = Record::load().differences(&seen, &wanted);
    assert!(
        differing.is_empty(),
        "docs/results/clients.md says otherwise:\n{}",
        differing.join("\n")
    );
}
