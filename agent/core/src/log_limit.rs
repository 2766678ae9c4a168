//! Rate limit for log messages that others can cause without end.

use core::time::Duration;

use crate::time::Uptime;

/// Allows a number of messages per period and counts the others.
#[derive(Debug)]
pub struct LogLimit {
    most: u32,
    pause: Duration,
    next: Option<Uptime>,
    allowed: u32,
    suppressed: u32,
}

impl LogLimit {
    /// A limit of one message per `pause`.
    #[must_use]
    pub const fn new(pause: Duration) -> Self {
        Self::burst(1, pause)
    }

    /// A limit of `most` messages in each period of `pause`.
    #[must_use]
    pub const fn burst(most: u32, pause: Duration) -> Self {
        Self { most, pause, next: None, allowed: 0, suppressed: 0 }
    }

    /// Reports an occurrence. If it is to be logged: the number suppressed since the last one.
    pub fn again(&mut self, now: Uptime) -> Option<u32> {
        if self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + self.pause);
            self.allowed = 0;
        }
        if self.allowed == self.most {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.allowed += 1;
        Some(core::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_twice_a_minute_with_its_size() {
        let mut limit = LogLimit::new(Duration::from_secs(30));
        let logged: std::vec::Vec<_> = (0..=60_000)
            .filter_map(|now| Some((now, limit.again(Uptime::from_millis(now))?)))
            .collect();
        assert_eq!(logged, [(0, 0), (30_000, 29_999), (60_000, 29_999)]);
    }

    #[test]
    fn a_burst_is_logged_whole_and_what_is_too_much_is_counted() {
        let mut limit = LogLimit::burst(3, Duration::from_secs(10));
        let mut five = |now| [(); 5].map(|()| limit.again(Uptime::from_millis(now)));
        assert_eq!(five(0), [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(five(9_999), [None; 5]);
        assert_eq!(five(10_000), [Some(7), Some(0), Some(0), None, None]);
    }
}
