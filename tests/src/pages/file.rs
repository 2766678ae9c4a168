//! The pages of `docs/` that tests make and hold.

use std::path::{Path, PathBuf};

/// Writes a page of `docs/`, where `MOTE_WRITE_DOCS` says so.
pub fn write(name: &str, page: &str) {
    if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
        std::fs::write(path(name), page).expect("a page");
    }
}

/// A page of `docs/` as it is.
#[must_use]
pub fn committed(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_default()
}

/// The page with another text between its two marks.
#[must_use]
pub fn between(page: &str, [begin, end]: [&str; 2], text: &str) -> String {
    let (before, rest) = page.split_once(begin).expect("the begin's mark");
    let (_, after) = rest.split_once(end).expect("the end's mark");
    format!("{before}{begin}{text}{end}{after}")
}

/// Demands that a page of `docs/` is this.
pub fn hold(name: &str, page: &str) {
    let committed = committed(name);
    let differing = || {
        let new = page.lines().filter(|line| !committed.lines().any(|old| old == *line));
        new.collect::<Vec<_>>().join("\n")
    };
    assert!(committed == page, "docs/{name} says otherwise:\n{}", differing());
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}
