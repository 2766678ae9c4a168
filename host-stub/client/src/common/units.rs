//! Bytes and durations for people.

use std::time::Duration;

/// Formats bytes with a binary unit and three digits.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut rest = count;
    let mut below = 0;
    let mut unit = "B";
    for next in UNITS {
        if rest < 1024 {
            break;
        }
        (below, rest, unit) = (rest % 1024, rest / 1024, next);
    }
    if rest < 10 {
        return format!("{rest}.{:02} {unit}", below * 100 / 1024);
    }
    if rest < 100 {
        return format!("{rest}.{} {unit}", below * 10 / 1024);
    }
    format!("{rest} {unit}")
}

/// Formats a duration with its two largest units.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match () {
        () if days > 0 => format!("{days} d {hours} h"),
        () if hours > 0 => format!("{hours} h {minutes} min"),
        () if minutes > 0 => format!("{minutes} min {rest} s"),
        () if seconds >= 10 => format!("{seconds} s"),
        () if seconds > 0 => format!("{}.{} s", seconds, time.subsec_millis() / 100),
        () => format!("{} ms", time.subsec_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        for (count, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (35_750_000, "34.0 MiB"),
            (134_217_728, "128 MiB"),
            (1 << 40, "1.00 TiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
        for (millis, shown) in [
            (7, "7 ms"),
            (1250, "1.2 s"),
            (59_900, "59 s"),
            (61_000, "1 min 1 s"),
            (7_260_000, "2 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), shown);
        }
    }
}
