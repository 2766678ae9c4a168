//! Times in events and answers: RFC 3339, UTC, milliseconds. They are only shown; durations are
//! measured with `Instant`.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};

pub fn now() -> String {
    rfc3339(SystemTime::now())
}

pub fn rfc3339(moment: SystemTime) -> String {
    DateTime::<Utc>::from(moment).to_rfc3339_opts(SecondsFormat::Millis, true)
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
