//! Third-party clients against mote over sockets, for `docs/results/clients.md`. `MOTE_ONLY` (part
//! of a client's name) selects some.

use mote_tests::clients::{CLIENTS, Subject, page, run_all};
use mote_tests::pages::file;

#[test]
fn mote_matches_the_page() {
    let only = std::env::var("MOTE_ONLY").unwrap_or_default();
    let wanted: Vec<_> = CLIENTS.iter().filter(|client| client.heading.contains(&only)).collect();
    let seen = run_all(&Subject::ON_SOCKETS, &wanted);
    let differing = page::differences(&file::committed(page::NAME), &seen, &wanted);
    assert!(
        differing.is_empty(),
        "docs/results/clients.md says otherwise:\n{}",
        differing.join("\n")
    );
}
