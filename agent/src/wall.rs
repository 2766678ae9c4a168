//! Wall-clock time as text, for event timestamps (P§4.3: RFC 3339 with nanoseconds).

use core::fmt::{Result, Write};

/// Writes seconds and nanoseconds since 1970 as `2026-01-02T03:04:05.000000006Z`.
///
/// # Errors
/// Only those of `out`.
pub fn write_rfc3339(out: &mut impl Write, seconds: u64, nanoseconds: u32) -> Result {
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

/// Days since 1970 → the Gregorian date. The year is taken to begin in March, so that the leap day
/// is its last; 400 years are 146,097 days.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn text(seconds: u64) -> String {
        let mut out = String::new();
        write_rfc3339(&mut out, seconds, 7).unwrap();
        out
    }

    #[test]
    fn known_moments_are_right() {
        assert_eq!(text(0), "1970-01-01T00:00:00.000000007Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00.000000007Z");
        assert_eq!(text(1_767_225_599), "2025-12-31T23:59:59.000000007Z");
        assert_eq!(text(4_107_542_400), "2100-03-01T00:00:00.000000007Z");
    }
}
