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
    /// At most the figure of this other row, plus 5 %.
    As(&'static str),
    None,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Short name, as for `--only`.
    pub id: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    pub better: Better,
    pub goal: Goal,
}

const fn row(id: &'static str, title: &'static str, unit: &'static str, better: Better) -> Row {
    Row { id, title, unit, better, goal: Goal::None }
}

impl Row {
    const fn goal(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }

    pub fn ratio(&self, ours: f64, theirs: f64) -> f64 {
        match self.better {
            Lower => theirs / ours,
            Higher => ours / theirs,
        }
    }
}

/// The row of a baseline program: the shortest time of a call.
pub const FLOOR: &str = "floor";
/// The same for an upload: the highest rate.
pub const SINK: &str = "sink";
/// Baseline rows, shown below the table, each with the row that it limits.
pub const LIMITS: [(&str, &str); 2] = [(FLOOR, "root"), (SINK, "put")];

/// Unit of the rows of [`super::counted`].
pub const MILLIONS: &str = "million guest instructions";
/// Unit of the rows of [`super::native`].
pub const MICROSECONDS: &str = "µs of CPU, without a VM";

/// Rows of the first table: counts that do not depend on the machine.
pub const COUNTED: [Row; 10] = [
    row("i-start", "start to CONNECTED", MILLIONS, Lower),
    row("i-root", "`GET /`", MILLIONS, Lower),
    row("i-config", "`GET /1.0/config`", MILLIONS, Lower),
    row("i-exec", "`exec true`", MILLIONS, Lower),
    row("i-out", "`exec`, 1 MiB of output", MILLIONS, Lower),
    row("i-put", "SFTP, 1 MiB put", MILLIONS, Lower),
    row("i-get", "SFTP, 1 MiB got", MILLIONS, Lower),
    row("i-metrics", "metrics", MILLIONS, Lower),
    row("i-idle", "an idle minute", MILLIONS, Lower),
    row("wakeups", "wake-ups in an idle minute", "", Lower),
];

/// The CPU time of mote for the row of [`COUNTED`] with the same title.
pub const NATIVE: [Row; 7] = [
    row("n-root", "`GET /`", MICROSECONDS, Lower),
    row("n-config", "`GET /1.0/config`", MICROSECONDS, Lower),
    row("n-exec", "`exec true`", MICROSECONDS, Lower),
    row("n-out", "`exec`, 1 MiB of output", MICROSECONDS, Lower),
    row("n-put", "SFTP, 1 MiB put", MICROSECONDS, Lower),
    row("n-get", "SFTP, 1 MiB got", MICROSECONDS, Lower),
    row("n-metrics", "metrics", MICROSECONDS, Lower),
];

/// Rows of the second table.
pub const MEASURED: [Row; 10] = [
    row("bytes", "binary", "bytes", Lower).goal(Goal::Times(13.0)),
    row("pss", "memory (PSS) 2 s after CONNECTED", "kB", Lower).goal(Goal::Times(13.0)),
    row("pss300", "memory (PSS) after 300 devlxd calls", "kB", Lower).goal(Goal::As("pss")),
    row("answered", "start to the first answer to the host", "ms", Lower).goal(Goal::Times(5.0)),
    row("told", "PUT to CONNECTED", "ms", Lower).goal(Goal::Times(2.0)),
    row("config", "`GET /1.0/config`, p50", "ms", Lower).goal(Goal::Times(15.0)),
    row("root", "`GET /`, p50", "ms", Lower).goal(Goal::Times(5.0)),
    row("exec", "`exec true`", "per s", Higher).goal(Goal::Times(2.0)),
    row("put", "SFTP, 16 MiB put", "MB/s", Higher).goal(Goal::Times(1.5)),
    row("get", "SFTP, 16 MiB got", "MB/s", Higher),
];

const BASELINES: [Row; 2] = [
    row(FLOOR, "`GET /` of a program that does nothing else, p50", "ms", Lower),
    row(SINK, "16 MiB put to a program that does nothing else", "MB/s", Higher),
];

pub fn all() -> impl Iterator<Item = &'static Row> {
    COUNTED.iter().chain(&NATIVE).chain(&MEASURED).chain(&BASELINES)
}

pub fn names() -> String {
    all().map(|row| row.id).collect::<Vec<_>>().join(" ")
}

pub fn find(id: &str) -> Option<&'static Row> {
    all().find(|row| row.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_goals_refer_to_rows() {
        for (index, row) in all().enumerate() {
            let first = all().position(|other| other.id == row.id);
            assert_eq!(first, Some(index), "{}", row.id);
            if let Goal::As(other) = row.goal {
                assert!(find(other).is_some(), "{other}");
            }
        }
    }
}
