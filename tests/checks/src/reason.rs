//! Reasons for what is not as it should be.

/// Names of groups, or of columns.
pub type Names = &'static [&'static str];

#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// Groups of the checks; all if empty.
    pub groups: Names,
    /// The check's name; with `*` at its end, what the names begin with.
    pub check: &'static str,
    /// Titles of the columns with this difference.
    pub columns: Names,
    /// Explanation; follows the observation in the note.
    pub why: &'static str,
    /// True if the check sometimes holds; then the note has no observation.
    pub sometimes: bool,
}

/// A difference that is always there.
pub const fn because(
    groups: Names,
    check: &'static str,
    columns: Names,
    why: &'static str,
) -> Reason {
    Reason { groups, check, columns, why, sometimes: false }
}

/// One that comes and goes.
pub const fn sometimes(
    groups: Names,
    check: &'static str,
    columns: Names,
    why: &'static str,
) -> Reason {
    Reason { groups, check, columns, why, sometimes: true }
}

impl Reason {
    /// Whether it is for this check in this column.
    pub fn fits(&self, group: &str, check: &str, column: &str) -> bool {
        let begin = self.check.strip_suffix('*');
        (self.groups.is_empty() || self.groups.contains(&group))
            && begin.map_or(check == self.check, |begin| check.starts_with(begin))
            && self.columns.contains(&column)
    }
}

/// The first that is for this check in this column.
pub fn find<'r>(
    reasons: &'r [Reason],
    group: &str,
    check: &str,
    column: &str,
) -> Option<&'r Reason> {
    reasons.iter().find(|reason| reason.fits(group, check, column))
}
