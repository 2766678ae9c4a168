//! The table of `docs/results/boots.md`: the tested ways to add mote to an image, and the time that
//! each takes. The test that boots an image prints its row. With `MOTE_WRITE_DOCS` it stores the
//! row in `tests/ways` and writes the table from all stored rows.

use std::time::Duration;

use mote_checks::markdown;

use crate::pages::file::{Rows, today};
use crate::pages::text::grouped;

pub(super) const ROWS: Rows = Rows {
    folder: "ways",
    page: "results/boots.md",
    marks: ["<!-- ways:begin -->\n", "<!-- ways:end -->"],
    head: "| way | booted here | agent's start to CONNECTED, s | power-on to CONNECTED, s | clean stop |\n\
           | --- | --- | --: | --: | --- |\n",
    names: &[
        ("deb+systemd", "deb+systemd"),
        ("deb+sysvinit", "deb+sysvinit"),
        ("deb+OpenRC", "deb+OpenRC"),
        ("deb+runit", "deb+runit"),
        ("deb+s6", "deb+s6"),
        ("sysext", "sysext"),
        ("initramfs-tools", "initramfs-tools"),
        ("dracut", "dracut"),
        ("one-file", "one-file"),
        ("aarch64", "aarch64"),
        ("riscv64", "riscv64"),
    ],
    none: "| {} | not booted | | | |\n",
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
    assert!(
        ROWS.names.iter().any(|(way, _)| *way == row.way),
        "{} is not a way of the table",
        row.way
    );
    // The page gives these figures once for all ways.
    println!("{} bytes added, PSS {} KiB", grouped(row.bytes), grouped(row.pss));
    let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
    let (booted, stop) =
        (format!("{}; {}", row.booted, today()), ["no", "yes"][usize::from(row.clean_stop)]);
    let (start, power_on) = (seconds(row.agent_start), seconds(row.power_on));
    let cells = [row.way, &booted, &start, &power_on, stop];
    ROWS.record(row.way, &markdown::row(cells.map(str::to_owned)));
}
