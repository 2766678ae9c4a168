//! Writes the results of all agents side by side, as `docs/results/conformance.md`.

use std::sync::LazyLock;

use mote_checks::{Reason, Table, Verdict, reasons};

use super::{Check, Claim, Column, Miss, Seen};

#[derive(Clone, Debug)]
pub struct Page {
    pub text: String,
    /// Cells without a listed reason, and reasons without a cell.
    pub unexplained: Vec<String>,
    /// Cells of a Go agent that was too slow for the check, without a listed reason. A busy machine
    /// causes that, so it does not count against mote, and the result is unknown.
    pub unknown: Vec<String>,
}

/// Reasons for the differences between agents. Every cell that is not "yes" needs a reason, and
/// every reason such a cell.
static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));

const HEAD: &str = "\
# Conformance

`scripts/test` (`tests/tests/conformance.rs`) boots a VM for each column and checks each row on the wire. It fails if this page
differs from what it sees. The checks (`tests/src/conform/`) are written from [the protocol pages](../protocol/README.md), not from
an agent; P§n is the source of a row there. Rows describe the agents of current LXD and Incus; Debian's are older. Rows with
`mote-host` check the host's half.

**yes**: as described. **no**: absent or an error. **differs**: something else happens. **sometimes**: not always. **-**: does not
apply to this server. Numbers are notes below the table.
";

/// Renders the page. If it is `whole`, each reason must have a cell.
pub fn render(checks: &[Check], columns: &[(Column, Seen)], whole: bool) -> Page {
    let titles: Vec<_> = columns.iter().map(|(column, _)| column.title()).collect();
    let mut table = Table::new(&REASONS, &titles);
    let (mut body, mut group, mut unknown) = (String::new(), "", Vec::new());
    for (row, check) in checks.iter().enumerate() {
        if check.group.heading != group {
            group = check.group.heading;
            body += &format!("\n## {group}\n\n{}", table.head("behaviour | source"));
        }
        let name = (check.group.heading, check.claim);
        let mut verdicts = Vec::new();
        for (column, (agent, seen)) in columns.iter().enumerate() {
            let known = agent.is_mote() || table.explains(column, name);
            verdicts.push(match &seen[row] {
                Some(Err(miss)) if !known && miss.is_late() => {
                    unknown.push(format!("{}: {}: {miss:?}", agent.title(), check.claim));
                    Some(Verdict::Unknown("it was too slow".into()))
                }
                claim => claim.as_ref().map(verdict),
            });
        }
        body += &table.row(&[check.claim, check.group.source], name, &verdicts);
    }
    let sums = table.sums(&["yes", "differs", "no", "sometimes"]);
    let text = format!("{HEAD}{sums}{body}\n## Notes\n{}", table.notes.list());
    let whole = whole && unknown.is_empty();
    Page { text, unexplained: table.unexplained(whole), unknown }
}

fn verdict(claim: &Claim) -> Verdict {
    match claim {
        Ok(()) => Verdict::Holds(String::new()),
        Err(Miss::No(text)) => Verdict::Fails(text.clone()),
        Err(Miss::Differs(text)) => Verdict::Differs(text.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Group;
    use super::*;

    #[test]
    fn a_late_go_agent_is_unknown_and_a_late_mote_fails() {
        let row = |claim| Group::new("Group", "P§1").is(claim, |_| Ok(()));
        let checks =
            [row("nothing is late"), row("`boot_time_seconds` and `time_seconds` are there")];
        let miss = |why: &str| Some(Err(Miss::from(why)));
        let columns = |why: &str| Column::ALL.map(|column| (column, vec![miss(why), miss(why)]));
        let late = render(&checks, &columns("nothing came in time"), false);
        let of = |lines: &[String], agent: &str| {
            lines.iter().filter(|line| line.starts_with(&format!("{agent}: "))).count()
        };
        let counts = |lines: &[String]| Column::ALL.map(|column| of(lines, column.title()));
        assert_eq!(
            (counts(&late.unexplained), counts(&late.unknown)),
            ([2, 0, 2, 0], [0, 2, 0, 1])
        );
        let refused = render(&checks, &columns("404"), false);
        assert_eq!(
            (counts(&refused.unexplained), counts(&refused.unknown)),
            ([2, 2, 2, 1], [0; 4])
        );
    }
}
