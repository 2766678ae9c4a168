//! Reasons for verdicts other than "yes".

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

/// Parses reasons, one per line: `GROUPS | CHECK | COLUMNS | WHY`, after `~ ` if the difference
/// occurs sometimes. `; ` separates names, `*` means all groups. The names are leaked, because each
/// table is read once.
pub fn reasons(text: &'static str) -> Vec<Reason> {
    let names = |text: &'static str| -> Names {
        text.split("; ").filter(|name| *name != "*").collect::<Vec<_>>().leak()
    };
    let reason = |line: &'static str| {
        let rest = line.strip_prefix("~ ");
        let fields: Vec<_> = rest.unwrap_or(line).split(" | ").collect();
        let [groups, check, columns, why] = fields[..] else { panic!("not a reason: {line}") };
        let (groups, columns) = (names(groups), names(columns));
        Reason { groups, check, columns, why, sometimes: rest.is_some() }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(reason).collect()
}

impl Reason {
    pub fn fits(&self, group: &str, check: &str, column: &str) -> bool {
        let begin = self.check.strip_suffix('*');
        (self.groups.is_empty() || self.groups.contains(&group))
            && begin.map_or(check == self.check, |begin| check.starts_with(begin))
            && self.columns.contains(&column)
    }
}

/// Returns the first that applies to this check in this column.
pub fn find<'r>(
    reasons: &'r [Reason],
    group: &str,
    check: &str,
    column: &str,
) -> Option<&'r Reason> {
    reasons.iter().find(|reason| reason.fits(group, check, column))
}
