//! How a suite of checks says what must be seen, what was, and why it may differ. Conformance, other people's clients and real
//! servers have it in common: a check comes to a verdict, each verdict that is not "yes" needs a reason, each reason such a
//! verdict, and a page shows them side by side, with notes.

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

mod notes;
mod reason;
mod say;
mod table;

pub use notes::{Notes, line, sentence};
pub use reason::{Names, Reason, because, find, reasons, sometimes};
pub use say::{Noise, has, line_with, noise, same};
pub use table::Table;

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds; what was seen.
    Holds(String),
    Differs(String),
    /// It is not there, or ends in an error.
    Fails(String),
    /// It cannot be tried here.
    NotRun(String),
    /// It was tried, and what ran it was lost each time.
    Unknown(String),
}

impl Verdict {
    /// The word of its cell, where no reason has another.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Holds(_) => "yes",
            Self::Differs(_) => "differs",
            Self::Fails(_) => "no",
            Self::NotRun(_) => "not run",
            Self::Unknown(_) => "not known",
        }
    }

    /// What was seen, or why nothing was.
    pub fn text(&self) -> &str {
        match self {
            Self::Holds(text)
            | Self::Differs(text)
            | Self::Fails(text)
            | Self::NotRun(text)
            | Self::Unknown(text) => text,
        }
    }

    /// Whether it needs a reason.
    pub fn is_miss(&self) -> bool {
        matches!(self, Self::Differs(_) | Self::Fails(_))
    }
}
