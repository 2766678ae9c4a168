//! What was seen of an agent, and as cells of a page.

use std::collections::BTreeMap;

use super::subject::Subject;

/// What was seen: by heading and case, `ok` or something else. In the order in which it came.
pub type Seen = Vec<((&'static str, String), String)>;

/// What a case says if it cannot be tried on this machine, with the reason.
pub const NOT_HERE: &str = "not here: ";

/// Cells by heading, case and column.
pub type Cells = BTreeMap<(String, String, &'static str), String>;

/// Puts what was seen into cells.
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
