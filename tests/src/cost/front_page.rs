//! README's table of this build, held to what is measured: the front page is never of another build. Its bytes are held
//! by `scripts/size --check`, its instructions are those of `tests/budgets/instructions-6.1`.

use std::path::Path;

/// How far a figure of README's may be off, percent.
const OFF: u64 = 3;

/// The figure in README's row of this name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn claimed(row: &str) -> u64 {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).expect("README");
    let line = readme
        .lines()
        .find_map(|line| line.strip_prefix("| ")?.strip_prefix(row)?.strip_prefix(" | "));
    let figure = line.unwrap_or_else(|| panic!("README has no row {row}"));
    figure.trim_end_matches(" |").replace(',', "").parse().expect("a number")
}

/// Whether README's figure is at most [`OFF`] percent off.
#[must_use]
pub fn agrees(row: &str, measured: u64) -> bool {
    let claimed = claimed(row);
    claimed.abs_diff(measured) * 100 <= claimed * OFF
}

/// Fails if it is not.
///
/// # Panics
/// So.
pub fn holds(row: &str, measured: u64) {
    assert!(
        agrees(row, measured),
        "README says {} in the row {row:?}, and it is {measured}",
        claimed(row)
    );
}

#[cfg(test)]
mod tests {
    use super::claimed;
    use crate::cost::budget::recorded;

    #[test]
    fn readme_has_the_instructions_that_are_held() {
        for (row, name) in [
            ("guest instructions for one `GET /`", "`GET /`"),
            ("guest instructions for one `GET /1.0/config`", "`GET /1.0/config`"),
            ("guest instructions idle, a minute", "an idle minute"),
            ("wake-ups idle, a minute", "wake-ups in it"),
        ] {
            assert_eq!(Some(claimed(row)), recorded("instructions-6.1", name), "{row}");
        }
    }
}
