//! Reasons for the differences between agents. Every cell that is not "yes" needs a reason, and
//! every reason such a cell.

use std::sync::LazyLock;

use mote_checks::{Reason, reasons};

pub static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));
