//! Time since boot, which the shell reads and passes to the core, and wall-clock time as text.

use core::fmt;
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

#[cfg(test)]
pub(crate) fn at(millis: u64) -> Uptime {
    Uptime::from_millis(millis)
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

/// Seconds and nanoseconds since 1970; shown as `2026-01-02T03:04:05.000000006Z` (P§4.3).
#[derive(Clone, Copy, Debug)]
pub struct Timestamp(pub u64, pub u32);

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(seconds, nanoseconds) = *self;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        write!(
            out,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{nanoseconds:09}Z",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

/// Converts days since 1970 to a Gregorian (year, month, day). Counting years from March makes the
/// leap day the last of its year; 400 years are 146,097 days.
pub(crate) fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}
