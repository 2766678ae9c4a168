//! The table of `docs/results/boots.md`: ways to add mote to an image that were booted here, and how long each takes. A test that
//! boots one records its row. With `MOTE_WRITE_DOCS` set, the row is kept in `tests/ways`, and the table is written
//! from all rows that are kept there.

use std::fmt::Write as _;
use std::time::Duration;

use crate::pages::file::{Rows, today};
use crate::pages::text::grouped;

/// The ways, in the table's order.
const WAYS: [&str; 10] = [
    "deb+systemd",
    "deb+sysvinit",
    "deb+OpenRC",
    "deb+runit",
    "deb+s6",
    "initramfs-tools",
    "dracut",
    "one-file",
    "aarch64",
    "riscv64",
];
const ROWS: Rows = Rows {
    folder: "ways",
    page: "results/boots.md",
    marks: ["<!-- ways:begin -->\n", "<!-- ways:end -->"],
};

/// What was measured of one way.
#[derive(Clone, Debug)]
pub struct Row {
    /// One of the table's.
    pub way: &'static str,
    /// What was booted: release, kernel, machine.
    pub booted: String,
    /// From the agent's start, by the guest's clock, to CONNECTED at the host.
    pub agent_start: Duration,
    /// From QEMU's start to CONNECTED at the host.
    pub power_on: Duration,
    /// By how much the image's files grew.
    pub bytes: u64,
    /// The agent's proportional set size once it is CONNECTED, in KiB.
    pub pss: u64,
    /// Whether STOPPED reached the host when the guest powered off.
    pub clean_stop: bool,
}

/// Prints the row, and writes it to the table if `MOTE_WRITE_DOCS` says so.
pub fn record(row: &Row) {
    assert!(WAYS.contains(&row.way), "{} is not a way of the table", row.way);
    // Not on the page, which has both of one build for all ways.
    println!("{} bytes added, PSS {} KiB", grouped(row.bytes), grouped(row.pss));
    ROWS.record(row.way, &format!("{}\n", row.line()), || table(&rows()));
}

impl Row {
    fn line(&self) -> String {
        let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
        format!(
            "| {} | {}; {} | {} | {} | {} |",
            self.way,
            self.booted,
            today(),
            seconds(self.agent_start),
            seconds(self.power_on),
            if self.clean_stop { "yes" } else { "no" },
        )
    }
}

/// The rows that are kept; a way that was never booted says so.
fn rows() -> Vec<String> {
    let row = |way: &&str| {
        ROWS.kept(way).map_or_else(
            || format!("| {way} | not booted | | | |"),
            |line| line.trim_end().to_owned(),
        )
    };
    WAYS.iter().map(row).collect()
}

fn table(rows: &[String]) -> String {
    let head = "| way | booted here | agent's start to CONNECTED, s | power-on to CONNECTED, s | clean stop |\n\
                | --- | --- | --: | --: | --- |\n";
    let mut table = head.to_owned();
    for row in rows {
        let _fits = writeln!(table, "{row}");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::file::{between, committed};

    #[test]
    fn only_the_table_changes() {
        let page = format!("before\n{}old\n{}\nafter\n", ROWS.marks[0], ROWS.marks[1]);
        let new = between(&page, ROWS.marks, &table(&["| one |".to_owned()]));
        assert!(new.starts_with("before\n") && new.ends_with("\nafter\n"));
        assert!(new.contains("\n| one |\n") && !new.contains("old"));
        assert_eq!(between(&new, ROWS.marks, &table(&["| one |".to_owned()])), new);
    }

    #[test]
    fn the_page_shows_the_rows_that_are_kept() {
        let page = committed(ROWS.page);
        assert_eq!(
            ROWS.shown(&table(&rows())),
            page,
            "docs/results/boots.md differs from tests/ways"
        );
    }
}
