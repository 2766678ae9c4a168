//! Results of the attempts.

use nix::errno::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Refused,
    /// Landlock or the kernel denies it: another user's, no capability.
    Denied,
    Done,
}

impl Outcome {
    pub(crate) fn is(self, said: Result<u64, Errno>) -> bool {
        match self {
            Self::Refused => said == Err(Errno::EPERM),
            // EXDEV: Landlock denies a new name in another directory.
            Self::Denied => {
                matches!(said, Err(Errno::EPERM | Errno::EACCES | Errno::EXDEV))
            }
            Self::Done => said.is_ok(),
        }
    }
}

/// Attempts, and results that differ from docs/explanation/security.md.
#[derive(Debug, Default)]
pub struct Report {
    pub calls: usize,
    /// A line for each that succeeded against the page, or failed against it.
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
