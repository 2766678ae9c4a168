//! What code that was injected into a sandboxed agent can and cannot do: as root, a debugger stops
//! the agent and makes its process call the kernel. x86-64 only, because of the registers.
#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]
#![cfg(target_arch = "x86_64")]

mod around;
mod attempts;
mod can;
mod ptrace;
mod refused;

use std::path::Path;

use nix::errno::Errno;

pub use around::{Around, Way};
pub use ptrace::Injected;

pub fn try_all(injected: &Injected, around: &Around) -> Result<Report, Errno> {
    let mut report = Report::default();
    refused::try_all(injected, &mut report);
    attempts::try_all(injected, around, &mut report)?;
    can::try_all(injected, around, &mut report)?;
    Ok(report)
}

/// Returns whether code in this process can read a file.
pub fn reads(injected: &Injected, file: &Path) -> bool {
    let opened = attempts::open(injected, file, 0);
    opened.inspect(|opened| attempts::close(injected, *opened)).is_ok()
}

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
