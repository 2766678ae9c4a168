//! The rows to measure, each with its unit, direction and goal.

use Better::{Higher, Lower};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Better than each Go agent by this ratio.
    Times(f64),
    /// At most 5 % above the figure of the row with this id.
    As(&'static str),
    None,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Short name, for `--only`.
    pub id: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    pub better: Better,
    pub goal: Goal,
}

const fn row([id, title, unit]: [&'static str; 3], better: Better, goal: Goal) -> Row {
    Row { id, title, unit, better, goal }
}

/// Returns a row for the count of this title in [`super::counted`]; the table shows its unit.
const fn count(id: &'static str, title: &'static str) -> Row {
    row([id, title, ""], Lower, Goal::None)
}

impl Row {
    pub fn ratio(&self, ours: f64, theirs: f64) -> f64 {
        match self.better {
            Lower => theirs / ours,
            Higher => ours / theirs,
        }
    }
}

/// Rows of the first table: counts that do not depend on the machine.
pub const COUNTED: [Row; 10] = [
    count("i-start", "start to CONNECTED"),
    count("i-root", "`GET /`"),
    count("i-config", "`GET /1.0/config`"),
    count("i-exec", "`exec true`"),
    count("i-out", "`exec`, 1 MiB of output"),
    count("i-put", "SFTP, 1 MiB put"),
    count("i-get", "SFTP, 1 MiB got"),
    count("i-metrics", "metrics"),
    count("i-idle", "an idle minute"),
    count("wakeups", "wake-ups in an idle minute"),
];

/// CPU time of mote without a VM, µs, for the row of [`COUNTED`] with the same title.
pub const NATIVE: [Row; 7] = [
    count("n-root", "`GET /`"),
    count("n-config", "`GET /1.0/config`"),
    count("n-exec", "`exec true`"),
    count("n-out", "`exec`, 1 MiB of output"),
    count("n-put", "SFTP, 1 MiB put"),
    count("n-get", "SFTP, 1 MiB got"),
    count("n-metrics", "metrics"),
];

/// Rows of the second table.
pub const MEASURED: [Row; 10] = [
    row(["bytes", "binary", "bytes"], Lower, Goal::Times(13.0)),
    row(["pss", "memory (PSS) 2 s after CONNECTED", "kB"], Lower, Goal::Times(13.0)),
    row(["pss300", "memory (PSS) after 300 devlxd calls", "kB"], Lower, Goal::As("pss")),
    row(["answered", "start to the first answer to the host", "ms"], Lower, Goal::Times(5.0)),
    row(["told", "PUT to CONNECTED", "ms"], Lower, Goal::Times(2.0)),
    row(["config", "`GET /1.0/config`, p50", "ms"], Lower, Goal::Times(15.0)),
    row(["root", "`GET /`, p50", "ms"], Lower, Goal::Times(5.0)),
    row(["exec", "`exec true`", "per s"], Higher, Goal::Times(2.0)),
    row(["put", "SFTP, 16 MiB put", "MB/s"], Higher, Goal::Times(1.5)),
    row(["get", "SFTP, 16 MiB got", "MB/s"], Higher, Goal::None),
];

pub fn all() -> impl Iterator<Item = &'static Row> {
    COUNTED.iter().chain(&NATIVE).chain(&MEASURED)
}

pub fn find(id: &str) -> Option<&'static Row> {
    all().find(|row| row.id == id)
}
