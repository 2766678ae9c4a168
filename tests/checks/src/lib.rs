//! Verdicts and their presentation, shared by conformance, third-party clients and real servers: a
//! check has a verdict, each verdict other than "yes" needs a reason, each reason needs such a
//! verdict, and a page shows them side by side with notes.

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

mod notes;
mod reason;
mod say;
mod table;

pub use notes::{Notes, line, sentence};
pub use reason::{Names, Reason, find, reasons};
pub use say::{Noise, has, line_with, noise, same};
pub use table::Table;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The check passed: the observation.
    Holds(String),
    Differs(String),
    /// The feature is missing, or ends in an error.
    Fails(String),
    /// The check cannot run here.
    NotRun(String),
    /// The check ran, but its machine was lost each time.
    Unknown(String),
}

impl Verdict {
    /// Returns the word of its cell, if no reason has another.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Holds(_) => "yes",
            Self::Differs(_) => "differs",
            Self::Fails(_) => "no",
            Self::NotRun(_) => "not run",
            Self::Unknown(_) => "not known",
        }
    }

    /// Returns what was seen, or why nothing was.
    pub fn text(&self) -> &str {
        match self {
            Self::Holds(text)
            | Self::Differs(text)
            | Self::Fails(text)
            | Self::NotRun(text)
            | Self::Unknown(text) => text,
        }
    }

    /// Returns whether it needs a reason.
    pub fn is_miss(&self) -> bool {
        matches!(self, Self::Differs(_) | Self::Fails(_))
    }
}
