//! Pauses before restarts of a program: short at first, doubled each time, so that a program that
//! cannot run costs nothing.

use core::time::Duration;

/// Pause before the first restart.
const FIRST: Duration = Duration::from_millis(100);
const MAX_RESTART_PAUSE: Duration = Duration::from_secs(30);
/// A program that ran this long is stable: its next pause is the first again.
const STAYED: Duration = Duration::from_secs(60);

/// The pauses of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restarts {
    last: Duration,
}

impl Restarts {
    /// Returns the pause before the next start of a program that ran for `ran`.
    pub fn pause(&mut self, ran: Duration) -> Duration {
        self.last =
            if ran >= STAYED { FIRST } else { (self.last * 2).clamp(FIRST, MAX_RESTART_PAUSE) };
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn pauses(ran: &[u64]) -> Vec<u128> {
        let mut restarts = Restarts::default();
        ran.iter().map(|ran| restarts.pause(Duration::from_secs(*ran)).as_millis()).collect()
    }

    #[test]
    fn doubles_the_delay_for_an_unstable_program() {
        let expected = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(pauses(&[0; 11]), expected);
    }

    #[test]
    fn a_stable_program_restarts_at_once() {
        assert_eq!(pauses(&[0, 0, 59, 60, 0, 3600]), [100, 200, 400, 100, 200, 100]);
    }
}
