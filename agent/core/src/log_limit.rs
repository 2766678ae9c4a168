//! Rate limit for log messages that peers can cause.

use core::time::Duration;

use crate::time::Uptime;

/// Allows one message per period and counts the others.
#[derive(Debug)]
pub struct LogLimit {
    pause: Duration,
    next: Option<Uptime>,
    suppressed: u32,
}

impl LogLimit {
    /// A limit of one message per `pause`.
    pub const fn new(pause: Duration) -> Self {
        Self { pause, next: None, suppressed: 0 }
    }

    /// Reports an occurrence. If the message must be logged, returns how many were suppressed since
    /// the last one.
    pub fn report(&mut self, now: Uptime) -> Option<u32> {
        if self.next.is_some_and(|next| now < next) {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.next = Some(now + self.pause);
        Some(core::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_twice_a_minute_with_its_size() {
        let mut limit = LogLimit::new(Duration::from_secs(30));
        let logged: Vec<_> = (0..=60_000)
            .filter_map(|now| Some((now, limit.report(Uptime::from_millis(now))?)))
            .collect();
        assert_eq!(logged, [(0, 0), (30_000, 29_999), (60_000, 29_999)]);
    }
}
