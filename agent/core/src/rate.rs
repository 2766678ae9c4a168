//! Limits how often something happens: a token bucket, and a limit on log messages.

use crate::time::Uptime;
use core::time::Duration;

/// A bucket of tokens, initially full. A caller may take a token in advance and wait for it, so all
/// are served in order.
#[derive(Debug)]
pub struct TokenBucket {
    refill: Duration,
    /// Time to refill the empty bucket.
    capacity: Duration,
    /// Time until the bucket is full, as of `at`.
    missing: Duration,
    at: Uptime,
}

impl TokenBucket {
    /// Creates a full bucket of `burst` tokens that gains one each `refill`.
    pub const fn new(burst: u32, refill: Duration) -> Self {
        let capacity = refill.saturating_mul(burst);
        Self { refill, capacity, missing: Duration::ZERO, at: Uptime(Duration::ZERO) }
    }

    /// Takes a token; returns how long the caller must wait for it.
    pub fn take(&mut self, now: Uptime) -> Duration {
        let refilled = now - self.at;
        self.at = self.at.max(now);
        self.missing = self.missing.saturating_sub(refilled).saturating_add(self.refill);
        self.missing.saturating_sub(self.capacity)
    }
}

/// Allows one message per period and counts the others.
#[derive(Debug)]
pub struct LogLimit {
    pause: Duration,
    next: Option<Uptime>,
    suppressed: u32,
}

impl LogLimit {
    /// Creates a limit of one message per `pause`.
    pub const fn new(pause: Duration) -> Self {
        Self { pause, next: None, suppressed: 0 }
    }

    /// Reports an occurrence. If it must be logged, returns how many were suppressed before it.
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
    use crate::time::at;

    const REFILL: Duration = Duration::from_millis(10);

    fn burst(bucket: &mut TokenBucket, now: u64) -> usize {
        let mut count = 0;
        while bucket.take(at(now)).is_zero() {
            count += 1;
        }
        // The last token was not available.
        bucket.missing -= REFILL;
        count
    }

    #[test]
    fn serves_a_burst_then_one_per_refill() {
        let mut bucket = TokenBucket::new(2000, REFILL);
        for (now, count) in [(0, 2000), (5_000, 500), (5_009, 0), (5_010, 1), (1_000_000, 2000)] {
            assert_eq!(burst(&mut bucket, now), count, "at {now}");
        }
        let now = 1_000_000;
        assert_eq!([(); 3].map(|()| bucket.take(at(now))), [REFILL, 2 * REFILL, 3 * REFILL]);
        // Later callers also wait for those before them.
        assert_eq!(bucket.take(at(now + 10)), 3 * REFILL);
        assert_eq!(bucket.take(at(now + 41)), 9 * Duration::from_millis(1));
    }

    #[test]
    fn a_late_clock_refills_once() {
        let mut bucket = TokenBucket::new(1, REFILL);
        assert_eq!(bucket.take(at(100)), Duration::ZERO);
        assert_eq!(bucket.take(at(90)), REFILL);
        assert_eq!(bucket.take(at(100)), 2 * REFILL);
        assert_eq!(bucket.take(at(110)), 2 * REFILL);
    }

    #[test]
    fn a_flood_is_logged_twice_a_minute_with_its_size() {
        let mut limit = LogLimit::new(Duration::from_secs(30));
        let logged: Vec<_> = (0..=60_000)
            .filter_map(|now| Some((now, limit.report(Uptime::from_millis(now))?)))
            .collect();
        assert_eq!(logged, [(0, 0), (30_000, 29_999), (60_000, 29_999)]);
    }
}
