//! README's table, held to what is measured of this build: its bytes also by `scripts/size --check`.

use std::path::Path;

/// How far a figure of README's may be off, percent.
const OFF: u64 = 3;

/// The figure in README's row of this name.
pub fn claimed(row: &str) -> u64 {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).expect("README");
    let line = readme
        .lines()
        .find_map(|line| line.strip_prefix("| ")?.strip_prefix(row)?.strip_prefix(" | "));
    let figure = line.unwrap_or_else(|| panic!("README has no row {row}"));
    // The first is ours, the next are others'.
    let figure = figure.split(" | ").next().unwrap_or_default();
    figure.trim_end_matches(" |").replace(',', "").parse().expect("a number")
}

/// Whether README's figure is at most [`OFF`] percent off.
pub fn agrees(row: &str, measured: u64) -> bool {
    let claimed = claimed(row);
    claimed.abs_diff(measured) * 100 <= claimed * OFF
}

/// Fails if it is not.
pub fn holds(row: &str, measured: u64) {
    assert!(
        agrees(row, measured),
        "README says {} in the row {row:?}, and it is {measured}",
        claimed(row)
    );
}
