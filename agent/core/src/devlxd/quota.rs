//! Limits on the agent's resources that programs in the guest can occupy. Usually all of them run
//! as root: the socket is closed to other users unless an administrator opens it.

use core::time::Duration;

use crate::rate::TokenBucket;
use crate::time::Uptime;

/// Burst of calls to the host. cloud-init and LXD's tools make a few dozen; a script that calls in
/// a loop runs at full speed for its first 1.5 s.
const BURST: u32 = 2000;
/// Interval between tokens: 100 calls per second, about what a Go agent achieves on one CPU (a
/// fifteenth of mote's 1,300, `docs/results/bench.md`), so a guest does not load its host more than
/// before. A call without a token waits for one.
const REFILL: Duration = Duration::from_millis(10);

/// Class of a connection's owner. Neither class can use up what the other needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// User 0.
    Root,
    /// All other users together.
    Others,
}

impl Class {
    pub const fn of(user: u32) -> Self {
        if user == 0 { Self::Root } else { Self::Others }
    }
}

/// Resources that are limited in number. Root may use all of them, other users together half, so
/// root always gets some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Requests for the host, waiting or in progress.
    Queued,
    /// Requests that need more memory than each connection has.
    LargeBody,
    Call,
    /// Calls to the host that may take minutes.
    LongPoll,
    Listener,
    /// Answers longer than [`SHORT_REPLY`](crate::limits::SHORT_REPLY) that are held in memory.
    LongReply,
}

impl Quota {
    /// All quotas, in the order of [`Bounds::quotas`].
    #[rustfmt::skip] // several in a line
    pub const ALL: [Self; QUOTAS] = [
        Self::Queued, Self::LargeBody, Self::Call, Self::LongPoll, Self::Listener, Self::LongReply,
    ];
}

const QUOTAS: usize = Quota::LongReply as usize + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of connections. One more closes an idle connection.
    pub connections: usize,
    /// Limit for each [`Quota`], in the order of [`Quota::ALL`].
    pub quotas: [usize; QUOTAS],
}

impl Bounds {
    /// Returns the limits for a process with this descriptor limit. A request takes up to two
    /// descriptors; the rest are for the host's connections.
    pub fn of(descriptors: usize) -> Self {
        let part = |most: usize, divisor: usize| most.min(descriptors / divisor).max(1);
        Self {
            connections: part(256, 2),
            quotas: [96, 16, part(32, 8), part(32, 16), part(64, 8), 1],
        }
    }

    pub fn most(&self, quota: Quota) -> usize {
        self.quotas.get(quota as usize).copied().unwrap_or_default()
    }

    /// Returns how many connections to accept before earlier ones are served again: half of those
    /// that cannot be queued, because a queued connection cannot be closed. So no client is
    /// disconnected for one that arrived at the same time. At least 1.
    pub fn at_once(&self) -> usize {
        (self.connections.saturating_sub(self.most(Quota::Queued)) / 2).max(1)
    }
}

/// The free part of each quota, and when the next call may be made.
#[derive(Debug)]
pub struct Quotas {
    free: [usize; QUOTAS],
    /// The free part of the half that other users may use.
    others: [usize; QUOTAS],
    calls: [TokenBucket; 2],
}

impl Quotas {
    pub fn new(bounds: &Bounds) -> Self {
        Self {
            free: bounds.quotas,
            others: bounds.quotas.map(|most| most.div_ceil(2)),
            calls: [const { TokenBucket::new(BURST, REFILL) }; 2],
        }
    }

    /// Takes one unit of the quota; returns false if none is free for this class.
    pub fn take(&mut self, class: Class, quota: Quota) -> bool {
        let index = quota as usize;
        let (Some(free), Some(others)) = (self.free.get_mut(index), self.others.get_mut(index))
        else {
            return false;
        };
        let is_others = usize::from(class == Class::Others);
        let left = free.checked_sub(1).zip(others.checked_sub(is_others));
        if let Some(left) = left {
            (*free, *others) = left;
        }
        left.is_some()
    }

    pub fn give_back(&mut self, class: Class, quota: Quota) {
        let index = quota as usize;
        if let (Some(free), Some(others)) = (self.free.get_mut(index), self.others.get_mut(index)) {
            *free += 1;
            *others += usize::from(class == Class::Others);
        }
    }

    /// Takes a token for a call to the host; returns how long the call must wait.
    pub fn call(&mut self, class: Class, now: Uptime) -> Duration {
        let [root, others] = &mut self.calls;
        let bucket = if class == Class::Root { root } else { others };
        bucket.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fuzz target `admission` also covers releasing.
    #[test]
    fn others_together_get_half_and_root_gets_all() {
        let bounds = Bounds::of(16_384);
        for quota in Quota::ALL {
            let mut quotas = Quotas::new(&bounds);
            let most = bounds.most(quota);
            let mut take_all = |class| (0..).take_while(|_| quotas.take(class, quota)).count();
            assert_eq!(take_all(Class::Others), most.div_ceil(2), "{quota:?}");
            assert_eq!(take_all(Class::Root), most / 2, "{quota:?}");
            assert_eq!(take_all(Class::Others), 0, "{quota:?}");
        }
    }

    #[test]
    fn calls_of_others_do_not_slow_down_root() {
        let mut quotas = Quotas::new(&Bounds::of(16_384));
        let now = Uptime::from_millis(30_000);
        let calls = |quotas: &mut Quotas, class| {
            (0..).take_while(|_| quotas.call(class, now).is_zero()).count()
        };
        assert_eq!(calls(&mut quotas, Class::Others), 2000);
        assert_eq!(calls(&mut quotas, Class::Root), 2000);
        assert_eq!(quotas.call(Class::Others, now), 2 * REFILL);
    }

    #[test]
    fn bounds_leave_connections_for_newcomers() {
        let most = Bounds { connections: 256, quotas: [96, 16, 32, 32, 64, 1] };
        assert_eq!(Bounds::of(16_384), most);
        assert_eq!(most.at_once(), 80);
        for descriptors in [0, 20, 64, 256, 1024, 4096, 65_536] {
            let bounds = Bounds::of(descriptors);
            let queued = bounds.most(Quota::Queued);
            let is_full = descriptors >= 512;
            assert!(bounds.connections / 2 > queued || !is_full, "{bounds:?}");
            assert!(bounds.at_once() + queued <= bounds.connections || bounds.at_once() == 1);
        }
    }
}
