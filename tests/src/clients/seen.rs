//! Results of an agent, and the cells of a page.

use std::collections::BTreeMap;

use super::subject::Subject;

/// Results by heading and case, in the order of the output: `ok` or something else.
pub type Seen = Vec<((&'static str, String), String)>;

/// Prefix of a case that this machine cannot run; the reason follows.
pub const NOT_HERE: &str = "not here: ";

pub type Cells = BTreeMap<(String, String, &'static str), String>;

pub fn cells(columns: &[(Subject, Seen)]) -> Cells {
    let mut cells = Cells::new();
    for (subject, seen) in columns {
        for ((heading, case), what) in seen {
            let cell = ((*heading).into(), case.clone(), subject.title());
            let before = cells.insert(cell, what.clone());
            assert!(before.is_none(), "two cases {heading}: {case}");
        }
    }
    cells
}
