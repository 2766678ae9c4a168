//! Reads, writes and compares generated pages in `docs/`, and formats their numbers.

pub use mote_checks::markdown::{between, grouped};

use crate::prelude::*;

/// Writes a page of `docs/` if `MOTE_WRITE_DOCS` is set.
pub fn write(name: &str, page: &str) {
    if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
        fs::write(path(name), page).expect("a page");
    }
}

pub fn committed(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_default()
}

pub fn hold(name: &str, page: &str) {
    let committed = committed(name);
    let differing = || {
        let new = page.lines().filter(|line| !committed.lines().any(|old| old == *line));
        new.collect::<Vec<_>>().join("\n")
    };
    assert!(committed == page, "docs/{name} differs:\n{}", differing());
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

/// Prints a line of a table. With `MOTE_WRITE_DOCS` it also replaces the page's line with this cell.
fn record(page: &str, cell: &str, cells: &[&str]) {
    let new = markdown::row(cells.iter().map(|&cell| cell.to_owned()));
    print!("{new}");
    let (old, mark) = (committed(page), format!("| {cell} |"));
    assert_eq!(old.matches(&mark).count(), 1, "docs/{page} has no line {cell:?}");
    let line = |old: &str| if old.contains(&mark) { new.clone() } else { format!("{old}\n") };
    write(page, &old.lines().map(line).collect::<String>());
}

/// Records a kernel that was booted: the release that has it, its name, the log line about the
/// sandbox, and the time to CONNECTED.
pub fn kernel(from: &str, kernel: &str, sandbox: &str, power_on: Duration) {
    let release = match from {
        "bullseye" => "Debian 11",
        "jammy" => "Ubuntu 22.04",
        "bookworm" => "Debian 12",
        "trixie" => "Debian 13",
        "trixie-backports" => "Debian 13's backports",
        other => panic!("{other} is not in the table"),
    };
    let time = format!("{:.1}", power_on.as_secs_f64());
    record("results/kernels.md", release, &[kernel, release, "yes", sandbox, &time, &today()]);
}

/// Records a way to add mote to an image: release, kernel and machine that were booted, and the
/// times from the agent's start and from power-on to CONNECTED. The stop was clean.
pub fn way(way: &str, booted: &str, times: [Duration; 2]) {
    let [start, power_on] = times.map(|time| format!("{:.1}", time.as_secs_f64()));
    let booted = format!("{booted}; {}", today());
    record("results/boots.md", way, &[way, &booted, &start, &power_on, "yes"]);
}

pub fn measured(what: &str, figure: &str) {
    record("results/boots.md", what, &[what, figure]);
}

/// Returns the date of a row. A commit hash would not do, because it changes when the commit is
/// published.
fn today() -> String {
    let said = Command::new("date").args(["-u", "+%F"]).output().expect("date");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

/// Formats a number with at least three significant digits, and commas.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        // A whole number needs no decimals.
        _ if value.fract() == 0.0 => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    // NaN, infinity and numbers beyond `u64` stay as they are.
    let digits = digits.parse().map_or_else(|_| digits.to_owned(), grouped);
    format!("{sign}{digits}{rest}")
}

pub fn times(ratio: f64) -> String {
    let digits = usize::from(ratio < 99.95) + usize::from(ratio < 9.995);
    format!("{ratio:.digits$}×")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_with_three_digits_and_commas() {
        for (value, text) in [
            (900_432.0, "900,432"),
            (12_640_936.0, "12,640,936"),
            (1234.4, "1,234"),
            (137.26, "137"),
            (13.26, "13.3"),
            (1.306, "1.31"),
            (0.0791, "0.079"),
            (-1500.0, "-1,500"),
            (-150.0, "-150"),
            (99.97, "100"),
            (9.997, "10.0"),
            (1.0, "1"),
            (0.0, "0"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(["14.0×", "2.50×", "120×"], [13.96, 2.5, 119.6].map(times));
    }
}
