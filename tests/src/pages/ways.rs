//! The table of `docs/results/boots.md`: the tested ways to add mote to an image, and the time that
//! each takes. The test that boots an image prints its row. With `MOTE_WRITE_DOCS` it stores the
//! row in `tests/ways` and writes the table from all stored rows.

use std::fmt::Write as _;
use std::time::Duration;

use crate::pages::file::{Rows, today};
use crate::pages::text::grouped;

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

#[derive(Clone, Debug)]
pub struct Row {
    pub way: &'static str,
    /// Release, kernel and machine.
    pub booted: String,
    pub agent_start: Duration,
    pub power_on: Duration,
    /// Growth of the image's files.
    pub bytes: u64,
    pub pss: u64,
    pub clean_stop: bool,
}

pub fn record(row: &Row) {
    assert!(WAYS.contains(&row.way), "{} is not a way of the table", row.way);
    // The page gives these figures once for all ways.
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
    fn the_page_shows_the_stored_rows() {
        let page = committed(ROWS.page);
        assert_eq!(
            ROWS.shown(&table(&rows())),
            page,
            "docs/results/boots.md differs from tests/ways"
        );
    }
}
