//! Reads, writes and compares generated pages in `docs/`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a page of `docs/` if `MOTE_WRITE_DOCS` is set.
pub fn write(name: &str, page: &str) {
    if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
        std::fs::write(path(name), page).expect("a page");
    }
}

/// Returns a page of `docs/`.
#[must_use]
pub fn committed(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_default()
}

/// Replaces the text between the two marks of a page.
#[must_use]
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
}

impl Rows {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.folder).join(name)
    }

    /// Returns the row of this name with its newline; `None` if it was never measured.
    pub(super) fn kept(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    /// Prints the row. With `MOTE_WRITE_DOCS` also writes it and the page.
    pub(super) fn record(&self, name: &str, line: &str, table: impl FnOnce() -> String) {
        print!("{line}");
        if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(self.path("")).expect("a folder for rows");
            std::fs::write(self.path(name), line).expect("a row");
            write(self.page, &self.shown(&table()));
        }
    }

    pub(super) fn shown(&self, table: &str) -> String {
        between(&committed(self.page), self.marks, table)
    }
}

/// Returns the date of a row. A commit would not do, because its name changes when it is published.
pub(super) fn today() -> String {
    let said = Command::new("date").args(["-u", "+%F"]).output().expect("date");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}
