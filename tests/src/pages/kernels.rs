//! The table of `docs/results/kernels.md`. The test that boots a kernel prints its row. With
//! `MOTE_WRITE_DOCS` it stores the row in `tests/kernels` and writes the table from all stored
//! rows.

use std::time::Duration;

use mote_checks::markdown;

use crate::pages::file::{Rows, today};

pub(super) const ROWS: Rows = Rows {
    folder: "kernels",
    page: "results/kernels.md",
    marks: ["<!-- kernels:begin -->\n", "<!-- kernels:end -->"],
    head: "| kernel | of | all of it works | sandbox | power-on to CONNECTED, s | booted |\n\
           | --- | --- | --- | --- | --: | --- |\n",
    // The releases whose kernels are booted, oldest first: values of `MOTE_KERNEL`.
    names: &[
        ("bullseye", "Debian 11"),
        ("jammy", "Ubuntu 22.04"),
        ("bookworm", "Debian 12"),
        ("trixie", "Debian 13"),
        ("trixie-backports", "Debian 13's backports"),
    ],
    none: "| not booted | {} | | | | |\n",
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
    let Some((_, name)) = ROWS.names.iter().find(|(from, _)| *from == row.from) else {
        panic!("{} is not in the table", row.from);
    };
    let seconds = format!("{:.1}", row.power_on.as_secs_f64());
    let cells = [&row.kernel, *name, "yes", &row.sandbox, &seconds, &today()];
    ROWS.record(&row.from, &markdown::row(cells.map(str::to_owned)));
}
