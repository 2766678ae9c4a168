//! Compares README's table with measurements of this build. `scripts/size --check` compares its
//! bytes too.

use std::path::Path;

/// Tolerance of a README figure, percent. The memory is 844 to 904 kB in different runs, as the
/// kernel maps code in blocks of 64 kB and chooses where the program begins.
const OFF: u64 = 6;

/// Returns the figure in README's row of this name.
pub fn claimed(row: &str) -> u64 {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).expect("README");
    let line = readme
        .lines()
        .find_map(|line| line.strip_prefix("| ")?.strip_prefix(row)?.strip_prefix(" | "));
    let figure = line.unwrap_or_else(|| panic!("README has no row {row}"));
    // mote's figure is first.
    let figure = figure.split(" | ").next().unwrap_or_default();
    figure.trim_end_matches(" |").replace(',', "").parse().expect("a number")
}

pub fn agrees(row: &str, measured: u64) -> bool {
    let claimed = claimed(row);
    claimed.abs_diff(measured) * 100 <= claimed * OFF
}

pub fn holds(row: &str, measured: u64) {
    assert!(
        agrees(row, measured),
        "README says {} in the row {row:?}, and it is {measured}",
        claimed(row)
    );
}
