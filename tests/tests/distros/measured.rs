//! The figures of `docs/results/boots.md` that these tests measure, one per line.

use mote_tests::pages::file::{committed, write};

const PAGE: &str = "results/boots.md";

/// Prints a figure. With `MOTE_WRITE_DOCS` also writes it to its line of the page.
pub(crate) fn measured(what: &str, figure: &str) {
    println!("{what}: {figure}");
    let page = committed(PAGE);
    let begin = format!("| {what} | ");
    let mut found = false;
    let line = |line: &str| {
        let own = line.starts_with(&begin);
        found |= own;
        if own { format!("{begin}{figure} |\n") } else { format!("{line}\n") }
    };
    let new: String = page.lines().map(line).collect();
    assert!(found, "docs/{PAGE} has no line \"{begin}\"");
    write(PAGE, &new);
}
