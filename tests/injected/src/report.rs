//! What came of the attempts.

use nix::errno::Errno;

/// What an attempt leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Refused,
    /// Landlock does, or the kernel: another user's, no capability.
    Denied,
    Done,
}

impl Outcome {
    pub(crate) fn is(self, said: Result<u64, Errno>) -> bool {
        match self {
            Self::Refused => said == Err(Errno::EPERM),
            // EXDEV: Landlock, of a new name in another directory.
            Self::Denied => {
                matches!(said, Err(Errno::EPERM | Errno::EACCES | Errno::EXDEV))
            }
            Self::Done => said.is_ok(),
        }
    }
}

/// What was tried, and what went otherwise than docs/explanation/security.md says.
#[derive(Debug, Default)]
pub struct Report {
    pub calls: usize,
    /// A line for each that could do what it must not, or could not do what the page says it can.
    pub wrong: Vec<String>,
}

impl Report {
    pub(crate) fn compare(&mut self, name: &str, said: Result<u64, Errno>, outcome: Outcome) {
        self.calls += 1;
        if !outcome.is(said) {
            self.wrong.push(format!("{name}: {said:?}, not {outcome:?}"));
        }
    }
}
