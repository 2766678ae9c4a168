//! Formats times for events and answers (RFC 3339, UTC, milliseconds), and waits by polling.
//! Durations are measured with `Instant` instead.

use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};

pub fn now() -> String {
    rfc3339(SystemTime::now())
}

pub fn rfc3339(moment: SystemTime) -> String {
    DateTime::<Utc>::from(moment).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Repeats the check after each pause until it returns something or the time is over.
pub fn until<T>(limit: Duration, gap: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= end {
            return found;
        }
        std::thread::sleep(gap);
    }
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
