//! The outcome of a run and its reports, as JSON and JUnit XML.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};

use mote_client::common::clock::millis;
use mote_client::common::printable::without_numbers;
use mote_client::files::local_directory::report;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Exited(u8),
    /// The command has ended, but part of its output or a file of `--pull` is missing.
    Incomplete(u8, String),
    TimedOut(String),
    NotRun(String),
    /// The guest could not run the command; the exit code is what a shell returns in that case.
    CannotRun(u8, String),
    /// The guest was lost while the command ran.
    Lost(String),
    Signal(i32),
}

/// Exit code of a command that exceeded its time limit, as with timeout(1).
const TIMED_OUT: u8 = 124;
/// Exit code if the command never ran, as with timeout(1).
pub const NOT_RUN: u8 = 125;
/// Exit code if the guest was lost, as with `exec`.
const LOST: u8 = 129;

impl Outcome {
    /// Returns the exit code, the outcome's name and its cause. Programs need the name, because a
    /// command may exit with any of the codes. There is no cause if the command itself reports it.
    fn described(&self) -> (u8, &'static str, Option<&str>) {
        match self {
            Self::Exited(code) => (*code, "exited", None),
            Self::Incomplete(0, cause) => (NOT_RUN, "incomplete", Some(cause)),
            Self::Incomplete(code, cause) => (*code, "exited", Some(cause)),
            Self::TimedOut(cause) => (TIMED_OUT, "timed-out", Some(cause)),
            Self::NotRun(cause) => (NOT_RUN, "not-run", Some(cause)),
            Self::CannotRun(code, cause) => (*code, "not-run", Some(cause)),
            Self::Lost(cause) => (LOST, "lost", Some(cause)),
            Self::Signal(signal) => (u8::try_from(128 + signal).unwrap_or(u8::MAX), "signal", None),
        }
    }

    pub(crate) fn code(&self) -> u8 {
        self.described().0
    }

    /// Returns whether the guest worked, so that its console is of no interest.
    pub(crate) fn has_exited(&self) -> bool {
        matches!(self, Self::Exited(_) | Self::Incomplete(..) | Self::CannotRun(..))
    }

    pub(crate) fn cause(&self) -> Option<String> {
        self.described().2.map(without_numbers)
    }
}

/// The times at which phases began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phases {
    pub(crate) begun: Instant,
    pub(crate) booted: Option<Instant>,
    pub(crate) connected: Option<Instant>,
    pub(crate) started: Option<Instant>,
    pub(crate) ended: Option<Instant>,
}

impl Phases {
    pub(crate) fn new() -> Self {
        let begun = Instant::now();
        Self { begun, booted: None, connected: None, started: None, ended: None }
    }

    pub(crate) fn total(&self) -> Duration {
        self.begun.elapsed()
    }

    fn to_json(self) -> Value {
        let points = [Some(self.begun), self.booted, self.connected, self.started, self.ended];
        let names = ["prepare", "boot", "start", "command"];
        let mut phases = serde_json::Map::new();
        for (name, two) in names.iter().zip(points.windows(2)) {
            if let [Some(from), Some(to)] = two {
                phases.insert((*name).to_owned(), json!(millis(to.duration_since(*from))));
            }
        }
        phases.insert("total".to_owned(), json!(millis(self.total())));
        phases.into()
    }
}

pub(crate) fn result(outcome: &Outcome, phases: &Phases, about: &Value) -> Value {
    let (code, name, _) = outcome.described();
    json!({"outcome": name, "code": code, "cause": outcome.cause(), "ms": phases.to_json(),
        "vm": about})
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) failure: Option<String>,
    pub(crate) took: Duration,
    /// The end of stdout and stderr.
    pub(crate) output: [Vec<u8>; 2],
}

impl Case {
    /// Returns a case with the failure that a [`result`] shows.
    pub(crate) fn of(name: String, result: &Value, took: Duration, output: [Vec<u8>; 2]) -> Self {
        let failure = match (result["code"] == 0, result["cause"].as_str()) {
            (true, _) => None,
            (false, Some(cause)) => Some(cause.to_owned()),
            (false, None) => Some(format!("exit code {}", result["code"])),
        };
        Self { name, failure, took, output }
    }

    fn shown(&self) -> TestCase {
        let mut status = TestCaseStatus::success();
        if let Some(why) = &self.failure {
            status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(why);
        }
        let mut case = TestCase::new(&self.name, status);
        case.set_classname("mote-host.run").set_time(self.took);
        let [out, err] = &self.output;
        if !out.is_empty() {
            case.set_system_out_lossy(out);
        }
        if !err.is_empty() {
            case.set_system_err_lossy(err);
        }
        case
    }
}

pub(crate) fn write_junit(path: &Path, cases: &[Case]) -> Result<()> {
    let mut suite = TestSuite::new("mote-host run");
    suite.add_test_cases(cases.iter().map(Case::shown));
    let mut all = Report::unnamed();
    all.add_test_suite(suite);
    write(path, &all.to_string()?)
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    report(path)?.write_all(text.as_bytes()).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_an_exit_code_and_a_name() {
        let why = || "why".to_owned();
        for (outcome, code, name) in [
            (Outcome::Exited(37), 37, "exited"),
            (Outcome::Incomplete(0, why()), 125, "incomplete"),
            (Outcome::Incomplete(37, why()), 37, "exited"),
            (Outcome::TimedOut(why()), 124, "timed-out"),
            (Outcome::NotRun(why()), 125, "not-run"),
            (Outcome::CannotRun(127, why()), 127, "not-run"),
            (Outcome::Lost(why()), 129, "lost"),
            (Outcome::Signal(15), 143, "signal"),
        ] {
            let (its_code, its_name, _) = outcome.described();
            assert_eq!((its_code, its_name), (code, name));
        }
    }

    #[test]
    fn omits_phases_that_were_not_reached() {
        let mut phases = Phases::new();
        phases.booted = Some(phases.begun + Duration::from_millis(30));
        phases.connected = Some(phases.begun + Duration::from_millis(2030));
        let said = result(&Outcome::NotRun("x".into()), &phases, &json!({"accel": "tcg"}));
        assert_eq!((&said["ms"]["prepare"], &said["ms"]["boot"]), (&json!(30), &json!(2000)));
        assert_eq!((said["ms"].get("start"), &said["code"]), (None, &json!(125)));
        assert_eq!(said["vm"]["accel"], "tcg");
    }
}
