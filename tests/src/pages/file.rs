//! Reads, writes and compares generated pages in `docs/`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a page of `docs/` if `MOTE_WRITE_DOCS` is set.
pub fn write(name: &str, page: &str) {
    if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
        std::fs::write(path(name), page).expect("a page");
    }
}

pub fn committed(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_default()
}

/// Replaces the text between the two marks of a page.
pub fn between(page: &str, [begin, end]: [&str; 2], text: &str) -> String {
    let (before, rest) = page.split_once(begin).expect("the begin's mark");
    let (_, after) = rest.split_once(end).expect("the end's mark");
    format!("{before}{begin}{text}{end}{after}")
}

/// Fails if a page of `docs/` differs from this.
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

/// A table whose rows are stored separately, each by the test that measures it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Directory of the rows, in `tests`.
    pub(super) folder: &'static str,
    pub(super) page: &'static str,
    /// The text before and after the table.
    pub(super) marks: [&'static str; 2],
    pub(super) head: &'static str,
    /// The rows in their order: file, and title in the table.
    pub(super) names: &'static [(&'static str, &'static str)],
    /// The line of a row that was never measured; `{}` stands for its title.
    pub(super) none: &'static str,
}

impl Rows {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.folder).join(name)
    }

    /// Prints the row. With `MOTE_WRITE_DOCS` also writes it and the page.
    pub(super) fn record(&self, name: &str, line: &str) {
        print!("{line}");
        if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(self.path("")).expect("a folder for rows");
            std::fs::write(self.path(name), line).expect("a row");
            write(self.page, &self.shown());
        }
    }

    pub(super) fn shown(&self) -> String {
        let kept = |(name, title): &(&str, &str)| {
            let kept = std::fs::read_to_string(self.path(name));
            kept.unwrap_or_else(|_| self.none.replace("{}", title))
        };
        let rows: String = self.names.iter().map(kept).collect();
        between(&committed(self.page), self.marks, &format!("{}{rows}", self.head))
    }
}

/// Returns the date of a row. A commit would not do, because its name changes when it is published.
pub(super) fn today() -> String {
    let said = Command::new("date").args(["-u", "+%F"]).output().expect("date");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::{kernels, ways};

    #[test]
    fn the_pages_show_the_stored_rows() {
        for rows in [kernels::ROWS, ways::ROWS] {
            hold(rows.page, &rows.shown());
        }
    }
}
