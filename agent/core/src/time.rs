//! Time since boot. The shell reads the clock and passes it to the core.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Time since boot. Only the shell and tests create one from a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uptime(pub Duration);

impl Uptime {
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Add<Duration> for Uptime {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub for Uptime {
    type Output = Duration;
    /// Returns the time from `rhs` to `self`; zero if `self` is earlier.
    fn sub(self, rhs: Self) -> Duration {
        self.0.saturating_sub(rhs.0)
    }
}
