//! The table of `docs/results/kernels.md`. The test that boots a kernel prints its row. With
//! `MOTE_WRITE_DOCS` it stores the row in `tests/kernels` and writes the table from all stored
//! rows.

use std::time::Duration;

use crate::pages::file::{Rows, today};

/// The releases whose kernels are booted, oldest first: values of `MOTE_KERNEL`.
const FROM: [(&str, &str); 5] = [
    ("bullseye", "Debian 11"),
    ("jammy", "Ubuntu 22.04"),
    ("bookworm", "Debian 12"),
    ("trixie", "Debian 13"),
    ("trixie-backports", "Debian 13's backports"),
];
const ROWS: Rows = Rows {
    folder: "kernels",
    page: "results/kernels.md",
    marks: ["<!-- kernels:begin -->\n", "<!-- kernels:end -->"],
};

#[derive(Clone, Debug)]
pub struct Row {
    pub from: String,
    pub kernel: String,
    /// The log line about the sandbox.
    pub sandbox: String,
    pub power_on: Duration,
}

pub fn record(row: &Row) {
    let Some((_, name)) = FROM.iter().find(|(from, _)| *from == row.from) else {
        panic!("{} is not in the table", row.from);
    };
    let line = format!(
        "| {} | {name} | yes | {} | {:.1} | {} |\n",
        row.kernel,
        row.sandbox,
        row.power_on.as_secs_f64(),
        today()
    );
    ROWS.record(&row.from, &line, table);
}

fn table() -> String {
    let row = |(from, name): &(&str, &str)| {
        ROWS.kept(from).unwrap_or_else(|| format!("| not booted | {name} | | | | |\n"))
    };
    let rows: String = FROM.iter().map(row).collect();
    format!(
        "| kernel | of | all of it works | sandbox | power-on to CONNECTED, s | booted |\n| --- | --- | --- | --- | --: | --- |\n{rows}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::file::committed;

    #[test]
    fn the_page_shows_the_stored_rows() {
        let page = committed(ROWS.page);
        assert_eq!(ROWS.shown(&table()), page, "docs/{} differs from tests/kernels", ROWS.page);
    }
}
