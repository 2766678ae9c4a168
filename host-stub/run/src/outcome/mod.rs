//! How a run ended, and what is said of it.

pub(crate) mod junit;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use mote_client::common::clock::millis;
use mote_client::common::printable::without_numbers;

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command has.
    Exited(u8),
    /// It has, but not all that it wrote could be taken: its output, or files of `--pull`.
    Incomplete(u8, String),
    /// It was not done in time.
    TimedOut(String),
    /// It did not get to run.
    NotRun(String),
    /// The guest could not run it; the code that shells have for that.
    CannotRun(u8, String),
    /// The guest was lost while it ran.
    Lost(String),
    /// This process was told to end.
    Signal(i32),
}

/// The exit code of a command that did not end in time, as of timeout(1).
const TIMED_OUT: u8 = 124;
/// The exit code if the command never ran, as of timeout(1).
pub const NOT_RUN: u8 = 125;
/// The exit code if the guest was lost, as of `exec`.
const LOST: u8 = 129;

impl Outcome {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Incomplete(0, _) => NOT_RUN,
            Self::Exited(code) | Self::Incomplete(code, _) | Self::CannotRun(code, _) => *code,
            Self::TimedOut(_) => TIMED_OUT,
            Self::NotRun(_) => NOT_RUN,
            Self::Lost(_) => LOST,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    /// For programs: codes of commands may be the same as ours.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Incomplete(0, _) => "incomplete",
            Self::Exited(_) | Self::Incomplete(..) => "exited",
            Self::TimedOut(_) => "timed-out",
            Self::NotRun(_) | Self::CannotRun(..) => "not-run",
            Self::Lost(_) => "lost",
            Self::Signal(_) => "signal",
        }
    }

    /// Whether the guest is as it should be: its console has nothing to tell.
    pub(crate) fn has_exited(&self) -> bool {
        matches!(self, Self::Exited(_) | Self::Incomplete(..) | Self::CannotRun(..))
    }

    /// What is wrong, if that is not the command's to say.
    pub(crate) fn cause(&self) -> Option<String> {
        match self {
            Self::Exited(_) | Self::Signal(_) => None,
            Self::Incomplete(_, cause)
            | Self::CannotRun(_, cause)
            | Self::TimedOut(cause)
            | Self::NotRun(cause)
            | Self::Lost(cause) => Some(without_numbers(cause)),
        }
    }
}

/// When what began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phases {
    pub(crate) begun: Instant,
    pub(crate) booted: Option<Instant>,
    pub(crate) connected: Option<Instant>,
    pub(crate) started: Option<Instant>,
    pub(crate) ended: Option<Instant>,
}

impl Phases {
    /// It begins.
    pub(crate) fn new() -> Self {
        let begun = Instant::now();
        Self { begun, booted: None, connected: None, started: None, ended: None }
    }

    /// How long all took.
    pub(crate) fn total(&self) -> Duration {
        self.begun.elapsed()
    }

    /// How long each took, as far as they were reached.
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

/// For `--result`. `about` is what else is known of the VM.
pub(crate) fn result(outcome: &Outcome, phases: &Phases, about: &Value) -> Value {
    json!({"outcome": outcome.name(), "code": outcome.code(), "cause": outcome.cause(),
        "ms": phases.to_json(), "vm": about})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_code_and_its_name() {
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
            assert_eq!((outcome.code(), outcome.name()), (code, name));
        }
    }

    #[test]
    fn phases_that_were_not_reached_are_not_there() {
        let mut phases = Phases::new();
        phases.booted = Some(phases.begun + Duration::from_millis(30));
        phases.connected = Some(phases.begun + Duration::from_millis(2030));
        let said = result(&Outcome::NotRun("x".into()), &phases, &json!({"accel": "tcg"}));
        assert_eq!((&said["ms"]["prepare"], &said["ms"]["boot"]), (&json!(30), &json!(2000)));
        assert_eq!((said["ms"].get("start"), &said["code"]), (None, &json!(125)));
        assert_eq!(said["vm"]["accel"], "tcg");
    }
}
