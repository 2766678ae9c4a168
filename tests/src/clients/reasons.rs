//! Reasons for the differences between agents. Every cell that is not "yes" needs a reason, and
//! every reason such a cell.

use std::sync::LazyLock;

use mote_checks::{Reason, find, reasons};

/// True if there is a reason for a case in a column.
pub fn explained(heading: &str, case: &str, title: &str) -> bool {
    find(&REASONS, heading, case, title).is_some()
}

pub static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));

/// Clients that could not be run, and the reason.
pub const NOT_RUN: &str = include_str!("not_run.md");
